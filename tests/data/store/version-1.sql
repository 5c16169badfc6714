-- A store as version 1 of the tables was. It is never edited: stores like it are out there.

-- Remembered consents. Only those in state 'live' cover anything; the others are kept for a while to be looked at.
-- Session grants are not here: they end with the process.
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('live', 'consumed', 'expired', 'revoked', 'invalidated')),
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL,
    definition TEXT NOT NULL, launch TEXT NOT NULL, arguments TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive INTEGER NOT NULL,
    scope TEXT NOT NULL, lifetime TEXT NOT NULL, until INTEGER,
    evidence TEXT NOT NULL, by TEXT NOT NULL,
    granted_at INTEGER NOT NULL, last_used INTEGER NOT NULL, uses INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX grants_live ON grants (state);

-- Open prompts of every process that shares this file, for those that have no other way to see them.
CREATE TABLE prompts (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL, exposed TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive INTEGER NOT NULL, session INTEGER NOT NULL,
    message TEXT NOT NULL, opened_at INTEGER NOT NULL, until INTEGER NOT NULL
) STRICT;

-- Answers to prompts of other processes; the owner of the prompt judges them and writes what came of it.
CREATE TABLE answers (
    prompt TEXT PRIMARY KEY,
    answer TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL,
    outcome TEXT
) STRICT;

-- What was approved of each item, and what waits for approval.
CREATE TABLE pins (
    upstream TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    state TEXT NOT NULL,
    approved TEXT, approved_digest TEXT,
    waiting TEXT, waiting_digest TEXT,
    by TEXT, at INTEGER NOT NULL,
    PRIMARY KEY (upstream, kind, name)
) STRICT;

-- Limits that outlive a restart.
CREATE TABLE limits (
    limit_id TEXT NOT NULL, bucket TEXT NOT NULL, day INTEGER NOT NULL, state INTEGER NOT NULL,
    PRIMARY KEY (limit_id, bucket)
) STRICT;

-- The end of each chain of audit records.
CREATE TABLE audit_heads (chain TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, segment TEXT NOT NULL) STRICT;

-- `key`: 32 random bytes of this installation. `max_wall`: the latest time that was seen.
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;

-- What a program of version 1 left in them.
INSERT INTO meta (key, value) VALUES ('key', x'abababababababababababababababababababababababababababababababab'), ('max_wall', x'000000006ab13b80'), ('pins_epoch', x'0000000000000002');
INSERT INTO grants (id, state, caller, upstream, kind, item, definition, launch, arguments, rule, need, destructive, scope,
    lifetime, until, evidence, by, granted_at, last_used, uses, ended_at) VALUES
    ('00000000000000aa', 'live', 'ci', 'fx', 'tool', 'fx__echo', '4c4ed1afbfdaa1e4c3bf7bbb82d730cecb7e384da91eea4f3cc093fd545524d6', 'abfc412ce6e530df63b0dc9bf4e02bb3cb1719ab967c8f4ea3951ab5bae4ff3f', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',
     'ask-all', 'L1', 0, 'any', 'until', 9000000000, 'L3', 'uid:1', 1789999000, 9000000000, 3, NULL),
    ('00000000000000bb', 'consumed', 'ci', 'fx', 'tool', 'fx__echo', '4c4ed1afbfdaa1e4c3bf7bbb82d730cecb7e384da91eea4f3cc093fd545524d6', 'abfc412ce6e530df63b0dc9bf4e02bb3cb1719ab967c8f4ea3951ab5bae4ff3f', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',
     'ask-all', 'L1', 0, 'exact', 'once', NULL, 'L3', 'uid:1', 1789999000, 1789999500, 1, 9000000000);
INSERT INTO prompts (id, owner, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at,
    until) VALUES ('cccccccccccccccccccccccccccccccc', 'ffffffffffffffff', 'ci', 'fx', 'tool', 'fx__echo', 'echo', 'ask-all', 'L1', 0, 1,
    'headend asks for consent.', 1789999000, 9000000000);
INSERT INTO pins (upstream, kind, name, state, approved, approved_digest, waiting, waiting_digest, by, at) VALUES
    ('fx', 'tool', 'echo', 'pinned', '{"description":"one","name":"echo"}', '45b2ee23fcae8ad8e3569dd6419ed39ee02f5c18251adf52a1d10a78d584d6ba', NULL, NULL, 'first sight', 1789999000),
    ('docs', 'launch', '', 'rejected', NULL, NULL, '{"transport":"auto","url":"https://docs.example/mcp?key=marker"}',
     '9831d790710c63c684c540ee3d9f437099c4d7e4888cce469de2300525dfd4a8', 'uid:1', 1789999000);
INSERT INTO limits (limit_id, bucket, day, state) VALUES ('daily/per-day/caller', 'ci', 4000000, 17);
INSERT INTO audit_heads (chain, seq, hash, segment) VALUES ('main', 7, x'9f2e6d33a3717ee826353a404ba4618d1aeeb6879ad7936bce8ed5f46814924d', 'main-000001.jsonl');
PRAGMA user_version = 1;
