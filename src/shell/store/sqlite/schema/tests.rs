use super::*;
use crate::policy::Caller;

/// A store of version 1 with something in every table.
const VERSION_1: &str = include_str!("../../../../../tests/data/store/version-1.sql");
const KEY: [u8; 32] = [7; 32];

fn opened(sql: &str) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(sql).unwrap();
    connection
}

fn version(connection: &Connection) -> i64 {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Returns the tables and indices, as they were written.
fn tables(connection: &Connection) -> Vec<(String, Option<String>)> {
    let mut select = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
}

fn grants(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM grants", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_new_file_and_one_of_version_1_end_with_the_same_tables() {
    let (mut new, mut old) = (opened(""), opened(VERSION_1));
    assert_eq!(count_taken_steps(&old, VERSION).unwrap(), 1);
    for connection in [&mut new, &mut old] {
        migrate(connection, &KEY).unwrap();
        assert_eq!((version(connection), count_taken_steps(connection, VERSION).unwrap()), (14, 14));
    }
    assert_eq!(tables(&new), tables(&old));
    assert_eq!((grants(&new), grants(&old)), (0, 2));
    let key = |of: &Connection| -> [u8; 32] {
        of.query_row("SELECT value FROM meta WHERE key = 'key'", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((key(&new), key(&old)), (KEY, [0xab; 32]), "an installation keeps its key");
}

#[test]
fn steps_are_taken_once_in_order_and_all_or_none() {
    let mut store = opened(VERSION_1);
    let more = ["ALTER TABLE grants ADD COLUMN note TEXT", "UPDATE grants SET note = 'x'"];
    let longer = [STEPS, &more].concat();
    let version_now = i64::try_from(longer.len()).unwrap();
    let broken = [STEPS, &more[..1], &["UPDATE nothing SET note = 'x'"]].concat();
    assert!(matches!(take(&mut store, &broken, &KEY), Err(SchemaObstacle::Sql(_))));
    assert_eq!((version(&store), grants(&store)), (1, 2));
    for _ in 0..2 {
        take(&mut store, &longer, &KEY).unwrap();
        let noted: i64 = store.query_row("SELECT count(*) FROM grants WHERE note = 'x'", [], |row| row.get(0)).unwrap();
        assert_eq!((version(&store), noted), (version_now, 2));
    }
    assert!(matches!(migrate(&mut store, &KEY), Err(SchemaObstacle::Newer(newer)) if newer == version_now));
}

#[test]
fn tools_of_before_version_5_are_known_for_the_launch_that_was_approved() {
    let mut store = opened("");
    take(&mut store, &STEPS[..4], &KEY).unwrap();
    let row = |upstream: &str, kind: &str, name: &str, approved: &str, waiting: &str| {
        format!(
            "INSERT INTO pins (upstream, kind, name, state, approved_digest, waiting_digest, by, at)
             VALUES ('{upstream}', '{kind}', '{name}', 'pinned', nullif('{approved}', ''), nullif('{waiting}', ''), 'x', 1);"
        )
    };
    let rows = [
        row("a", "launch", "", "aa", ""),
        row("a", "tool", "known", "01", ""),
        row("a", "tool", "changed", "01", "02"),
        row("a", "tool", "waits", "", "02"),
        row("a", "prompt", "known", "01", ""),
        row("b", "launch", "", "bb", "cc"),
        row("b", "resource", "b://", "01", ""),
        row("empty", "launch", "", "dd", ""),
        row("lost", "tool", "known", "01", ""),
    ];
    store.execute_batch(&rows.concat()).unwrap();
    migrate(&mut store, &KEY).unwrap();
    let mut select = store
        .prepare("SELECT upstream, kind, name, confirmed FROM pins WHERE confirmed IS NOT NULL ORDER BY 1, 2, 3")
        .unwrap();
    let rows = select.query_map([], |row| {
        let text = |at| row.get::<_, String>(at);
        Ok([text(0)?, text(1)?, text(2)?, text(3)?].join(" "))
    });
    let rows: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows, ["a launch  aa", "a tool changed aa", "a tool known aa", "b launch  bb"]);
}

#[test]
fn logins_of_before_version_9_belong_to_no_upstream_yet() {
    let mut store = opened("");
    take(&mut store, &STEPS[..8], &KEY).unwrap();
    let rows = "INSERT INTO logins VALUES ('l', 'https://as.example', 3, 'live', 'sealed', 1, 4, 5);
                INSERT INTO registrations VALUES ('l', 'https://as.example', 'sealed');";
    store.execute_batch(rows).unwrap();
    migrate(&mut store, &KEY).unwrap();
    let login = "SELECT upstream || launch || issuer || version || state || value || tried || claimed_by || claimed_until FROM logins";
    let text = |sql: &str| -> String { store.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(text(login), "lhttps://as.example3livesealed145");
    assert_eq!(text("SELECT upstream || launch || issuer || value FROM registrations"), "lhttps://as.examplesealed");
    let issuers: i64 = store.query_row("SELECT count(*) FROM login_issuers", [], |row| row.get(0)).unwrap();
    assert_eq!((version(&store), issuers), (i64::try_from(VERSION).unwrap(), 0));
}

#[test]
fn callers_of_before_version_11_are_users_or_tokens_and_doubt_allows_less() {
    let mut store = opened("");
    take(&mut store, &STEPS[..10], &KEY).unwrap();
    let names = ["local", "uid:0", "uid:1000", "ci", "localhost", "user", "anyone", "uids"];
    for (n, name) in names.iter().enumerate() {
        let rows = format!(
            "INSERT INTO grants VALUES ('{n}', 'live', '{name}', 'fx', 'tool', 'x', '', '', '', 'r', 'L1', 0, 'any', 'until-changed',
                NULL, 'L3', 'uid:1', 1, 1, 1, NULL, NULL);
             INSERT INTO prompts VALUES ('{n}', 'f', '{name}', 'fx', 'tool', 'x', 'x', 'r', 'L1', 0, 0, 'm', 1, 2, NULL);
             INSERT INTO ended_sessions VALUES ('{name}', 5, x'00', 9);
             INSERT INTO ended_floors VALUES ('{name}', 5, 9);
             INSERT INTO limits VALUES ('few caller day', '[\"{name}\",\"\",\"fx__x\"]', 7, 3);"
        );
        store.execute_batch(&rows).unwrap();
    }
    let others =
        "INSERT INTO limits VALUES ('all upstream day', '[\"\",\"local\",\"\"]', 7, 3), ('older', 'ci', 7, 3);";
    store.execute_batch(others).unwrap();
    migrate(&mut store, &KEY).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut select = store.prepare(&format!("{sql} ORDER BY 1")).unwrap();
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let mut keys: Vec<String> = names.iter().map(|name| Caller::named(name).key().to_owned()).collect();
    keys.sort_unstable();
    assert_eq!(texts("SELECT caller FROM grants"), keys, "what was granted to `local` is our own user's");
    assert_eq!(texts("SELECT caller FROM approvals"), keys);
    keys.insert(0, Caller::anyone().key().to_owned());
    assert_eq!(texts("SELECT caller FROM ended_sessions"), keys, "what has ended has ended for both");
    assert_eq!(texts("SELECT caller FROM ended_floors"), keys);
    let bucket = |key: &String| format!(r#"["{key}","","fx__x"]"#);
    let buckets = texts("SELECT bucket FROM limits WHERE limit_id = 'few caller day' AND day = 7 AND state = 3");
    assert_eq!(buckets, keys.iter().map(bucket).collect::<Vec<_>>(), "what is used up is used up for both");
    let others = texts("SELECT bucket FROM limits WHERE limit_id <> 'few caller day'");
    assert_eq!(others, [r#"["","local",""]"#, "ci"]);
    assert!(keys.iter().all(|key| Caller::from_key(key).is_some()));
}
