//! The `[server.limits]` table: one key for each number, with its default and the reason for it.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::policy::{Rate, RateUnit};

use super::keys::{keys, read_value, shown_value};
use crate::source::file::ConfigTable;
use crate::source::units;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The range of a count: as many as memory can hold.
const COUNT: RangeInclusive<usize> = 1..=1_000_000;

const fn seconds(from: u64, to: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(from)..=Duration::from_secs(to)
}

impl Limits {
    /// Reads the table. An absent or invalid key gets its default.
    pub(crate) fn read(table: &mut ConfigTable<'_>) -> Self {
        let limits = Self::read_keys(table);
        limits.check(table);
        limits
    }

    /// Reports numbers that contradict each other.
    fn check(&self, table: &ConfigTable<'_>) {
        for (key, bytes) in [("max-upstream-result", self.upstream_result_bytes), ("max-body", self.body_bytes)] {
            if bytes > self.buffered_bytes {
                let (most, all) = (units::size(bytes), units::size(self.buffered_bytes));
                table.problem(format!(
                    "max-buffered ({all}) must not be less than {key} ({most}), or such a message never has room"
                ));
            }
        }
    }
}

keys! {
    /// Bounds on clients and their messages. The bounds per caller and on wrong credentials apply
    /// only to configurations with several callers.
    struct Limits {
        /// The limit of connections of one address of `listen` after a valid credential. Each costs
        /// a task and its buffers, some 30 KiB idle. Our own user, who has no share, leaves a
        /// quarter to other callers.
        connections: usize as count = "max-connections", 1024, COUNT;
        /// The limit of connections of one address of `listen` before a valid credential; the
        /// oldest gives way. A client needs one for the moment until its first request is read, so
        /// this bounds how fast a stranger would have to connect to displace it.
        anonymous_connections: usize as count = "anonymous-connections", 512, COUNT;
        /// The limit of anonymous connections from one network address, so that one peer cannot
        /// take them all.
        connections_per_ip: usize as count = "connections-per-ip", 256, COUNT;
        /// The limit of connections of one caller; hosts open a few for each window.
        connections_per_caller: usize as count = "connections-per-caller", 128, COUNT;
        /// The time from the connection to its first byte.
        first_byte_timeout: Duration as duration = "first-byte-timeout", Duration::from_secs(10), seconds(1, 3600);
        /// The time from the first byte to the end of the head; ends slow-header attacks.
        head_timeout: Duration as duration = "head-timeout", Duration::from_secs(10), seconds(1, 3600);
        /// The time from the head to the end of the body: 4 MiB at 140 kB/s.
        body_timeout: Duration as duration = "body-timeout", Duration::from_secs(30), seconds(1, 3600);
        /// The time for which a connection may stay open between requests.
        idle_timeout: Duration as duration = "idle-timeout", Duration::from_secs(120), seconds(1, 86_400);
        /// The time for which a client may read nothing of our output.
        write_timeout: Duration as duration = "write-timeout", Duration::from_secs(60), seconds(1, 3600);
        /// The limit of the body of a request in bytes: an image as an argument fits.
        body_bytes: usize as size = "max-body", 4 * MIB, KIB..=GIB;
        /// The limit of calls in flight, all upstreams together.
        in_flight: usize as count = "max-in-flight", 512, COUNT;
        /// The limit of calls in flight of one caller: a sixteenth of all.
        in_flight_per_caller: usize as count = "in-flight-per-caller", 32, COUNT;
        /// The limit of calls that wait for a slot. Calls of one caller leave room for calls of
        /// others.
        queue: usize as count = "queue", 128, 0..=1_000_000;
        /// The time for which a call waits for a slot before it is refused; longer while another
        /// caller has more slots than its own.
        queue_timeout: Duration as duration = "queue-timeout", Duration::from_secs(5), seconds(0, 3600);
        /// The limit of a result sent to a client, in bytes. Models read far less; images need
        /// this.
        result_bytes: usize as size = "max-result", 8 * MIB, KIB..=GIB;
        /// The limit of a message taken from an upstream, in bytes. Twice the result: lists are
        /// long.
        upstream_result_bytes: usize as size = "max-upstream-result", 16 * MIB, KIB..=GIB;
        /// The limit of the instructions of one server that clients get, in bytes; a longer text is
        /// cut. Hosts give them to their model with every request.
        instructions_each: usize as size = "max-instructions", KIB, 64..=16 * KIB;
        /// The limit of the instructions of all servers together, in bytes; texts beyond it are
        /// left out.
        instructions_all: usize as size = "max-instructions-together", 4 * KIB, 64..=256 * KIB;
        /// The limit of programs that start at once, until each is ready or has not answered for
        /// ten seconds: package runners load a machine.
        starts: usize as count = "max-starts", 8, 1..=1000;
        /// The limit of legacy sessions; beyond it the longest idle one ends.
        sessions: usize as count = "max-sessions", 4096, COUNT;
        /// The limit of legacy sessions of one caller.
        sessions_per_caller: usize as count = "sessions-per-caller", 64, COUNT;
        /// The time after which a session without stream or call ends.
        session_idle: Duration as duration = "session-idle", Duration::from_secs(30 * 60), seconds(1, 30 * 86_400);
        /// The time after which any session ends: a stolen session id is worth a day at most.
        session_max: Duration as duration = "session-max-age", Duration::from_secs(86_400), seconds(1, 365 * 86_400);
        /// The limit of `subscriptions/listen` streams of one caller.
        streams_per_caller: usize as count = "streams-per-caller", 16, COUNT;
        /// The limit of subscribed URIs of one `subscriptions/listen` stream.
        uris_per_stream: usize as count = "uris-per-stream", 256, COUNT;
        /// The interval of keep-alives on a quiet stream; proxies cut at 60 s.
        keepalive: Duration as duration = "keepalive", Duration::from_secs(15), seconds(1, 3600);
        /// The rate of requests of one caller.
        caller_rate: Rate as rate = "caller-rate", Rate { count: 20, per: RateUnit::Second };
        /// The burst of `caller-rate`: two seconds' worth, since hosts list everything at start.
        caller_burst: usize as count = "caller-burst", 40, COUNT;
        /// The rate of wrong credentials from one address, beyond which the next wrong one gets
        /// 429. Valid ones always pass.
        auth_failures: Rate as rate = "auth-failures", Rate { count: 5, per: RateUnit::Minute };
        /// The limit in bytes of all messages of 16 KiB and more together, from their first byte
        /// until their readers have them. A message without room is refused. Each of several
        /// callers has a quarter. Other bounds limit the number of smaller messages.
        buffered_bytes: usize as size = "max-buffered", 512 * MIB, MIB..=64 * GIB;
    }
}
