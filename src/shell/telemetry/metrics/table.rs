//! The table of metrics. The families, the metrics page and the table in `systemd/README.md` are
//! generated from it.

use prometheus::{
    CounterVec, Gauge, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use super::family::{Family, FamilyTable, MetricRow, families};

/// Bucket bounds in seconds, from half a millisecond to the longest call that a configuration
/// usually allows.
const CALLS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Bucket bounds in seconds. The gateway itself adds tens of microseconds, unless a call waits.
const OVERHEAD: &[f64] =
    &[0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Bucket bounds in seconds, from the answer of a client without a person to the longest time that
/// an approval usually stays open.
const ANSWERS: &[f64] = &[0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

families! {
    /// All of headend's own metric families.
    pub(super) struct Families;

    answer_durations: HistogramVec ["channel"] "headend_approval_answer_duration_seconds"
        "Time from the opening of an approval to its answer, by channel."
        documented as "Time from the opening of an approval to its answer, by channel: `client` \
            (L1), `console` (L2) or `operator` (L3)" in ANSWERS;
    answers: IntCounterVec ["result", "channel"] "headend_approval_answers_total"
        "Approvals that were answered or ended without an answer, by result and channel."
        documented as "Approvals that were answered (`granted`, `denied`, `dismissed`) or ended \
            without an answer (`timed-out`, `superseded`; channel `none`)";
    approvals_oldest: IntGauge [] "headend_approvals_oldest_age_seconds"
        "Age of the oldest open approval; 0 while none is open.";
    approvals_open: IntGauge [] "headend_approvals_open"
        "Open approvals of this process."
        documented as "Open approvals of the daemon; those of a `headend stdio` beside it are \
            not in it";
    audit_bytes: IntGauge [] "headend_audit_bytes"
        "Size of the files of the audit log.";
    audit_failures: IntCounter [] "headend_audit_failures_total"
        "Records that the audit log could not take.";
    audit_written: IntGauge [] "headend_audit_last_write_timestamp_seconds"
        "When the audit log was written last; 0 without one.";
    audit_records: IntCounterVec ["event"] "headend_audit_records_total"
        "Records written to the audit log, by event.";
    auth_failures: IntCounter [] "headend_auth_failures_total"
        "Requests without a valid token.";
    buffered: IntGauge [] "headend_buffered_bytes"
        "Bytes of messages that are being read or wait for a reader.";
    buffered_limit: IntGauge [] "headend_buffered_limit_bytes"
        "Limit of those bytes.";
    build: IntGaugeVec ["version"] "headend_build_info"
        "The running version; the value is always 1.";
    call_duration: HistogramVec ["upstream", "method"] "headend_call_duration_seconds"
        "Time from a call's arrival to its answer." in CALLS;
    overhead: HistogramVec ["upstream"] "headend_call_overhead_seconds"
        "Time of a call that was not the upstream's: routing, policy and waiting for a slot." in OVERHEAD;
    caller_calls: IntCounterVec ["caller"] "headend_caller_calls_total"
        "Calls of a caller or of all callers of an issuer that the configuration names, refused \
            ones too; all other callers are (other)."
        documented as "Calls of a caller that `auth.tokens` names, of all callers of an issuer \
            under its name, and of `local`, refused ones too; all other callers are `(other)`";
    held: IntGauge [] "headend_calls_held"
        "Calls that are held open while a person decides about them.";
    in_flight: IntGaugeVec ["upstream"] "headend_calls_in_flight"
        "Calls that the upstream is working on.";
    calls: IntCounterVec ["upstream", "method", "outcome"] "headend_calls_total"
        "Calls that ended, by upstream, method and outcome.";
    waiting: IntGauge [] "headend_calls_waiting"
        "Calls that wait for a slot among all calls in flight.";
    excess: IntGaugeVec ["upstream"] "headend_catalog_excess_items"
        "Items of an upstream that are not offered because its lists are longer than \
            max-inventory."
        documented as "Items of an upstream that are not offered because its lists are longer \
            than `max-inventory`";
    items: IntGaugeVec ["upstream", "kind"] "headend_catalog_items"
        "Items that an upstream offers after its filters, by kind.";
    repairs: IntGaugeVec ["upstream"] "headend_catalog_repairs"
        "Changes of an upstream's definitions that made them valid for strict clients.";
    unread_lists: IntGaugeVec ["upstream"] "headend_catalog_unread_lists"
        "Lists of an upstream that could not be read when they were last asked for.";
    withheld: IntGauge [] "headend_catalog_withheld_items"
        "Items withheld from clients because they are malformed or too many.";
    client_bytes: IntCounterVec ["transport", "direction"] "headend_client_bytes_total"
        "Bytes exchanged with clients; direction is seen from headend.";
    connections: IntGaugeVec ["transport"] "headend_client_connections"
        "Connections of clients.";
    sessions: IntGauge [] "headend_client_sessions"
        "Live HTTP sessions of clients of the legacy revisions.";
    reload_time: Gauge [] "headend_config_last_reload_success_timestamp_seconds"
        "When the configuration in force was loaded.";
    reload_ok: IntGauge [] "headend_config_last_reload_successful"
        "Whether the last attempt to load the configuration succeeded.";
    degraded: IntGaugeVec ["reason"] "headend_degraded"
        "Whether something does not work, by reason: 1 while it does not; see headend status."
        documented as "Whether something does not work (`audit-log`, `store`, `configuration`, \
            `descriptors`, `connections`, `upstreams`): 1 while it does not";
    denials: IntGauge [] "headend_denials"
        "Denials by a person that still refuse the same call.";
    no_descriptor: IntCounter [] "headend_descriptor_shortages_total"
        "Connections and processes for which there was no file descriptor.";
    grants: IntGaugeVec ["lifetime"] "headend_grants"
        "Grants in force, by lifetime."
        documented as "Grants in force: `once`, `session`, `until` a time, `until-changed` \
            (always)";
    limit_hits: IntCounterVec ["limit"] "headend_limit_hits_total"
        "Calls, credentials and connections that a limit refused, by limit.";
    dropped_lines: IntCounter [] "headend_log_dropped_lines_total"
        "Lines of the log that were dropped because their reader was too slow.";
    login_renewals: IntCounterVec ["upstream", "result"] "headend_login_renewals_total"
        "Attempts to renew the login at an upstream, by result."
        documented as "Attempts to renew the login at an upstream, by result: `renewed`, \
            `failed` (the login stays) or `expired` (a person has to log in again)";
    login_ends: IntGaugeVec ["upstream"] "headend_login_token_expiry_timestamp_seconds"
        "When the token in use for an upstream expires.";
    notices: IntCounterVec ["outcome"] "headend_notices_total"
        "Notices of open approvals that were sent by [policy.consent] notify, by outcome."
        documented as "Notices of open approvals that were sent by `[policy.consent] notify`, by \
            outcome: `ok` or `failed`";
    pins_waiting: IntGaugeVec ["upstream"] "headend_pins_waiting"
        "Items of an upstream that wait for approval because they changed or were never approved.";
    decisions: IntCounterVec ["effect", "rule"] "headend_policy_decisions_total"
        "Decisions on calls, by effect and by the rule that decided.";
    queue_wait: HistogramVec ["upstream"] "headend_queue_wait_seconds"
        "Time that calls waited for a free slot at their upstream." in OVERHEAD;
    start_duration: Gauge [] "headend_start_duration_seconds"
        "Time from the start of the daemon until it took calls; 0 before that.";
    store_bytes: IntGauge [] "headend_store_bytes"
        "Size of the files of the store in the state directory.";
    store_written: IntGauge [] "headend_store_last_write_timestamp_seconds"
        "When the store was written last; 0 without one.";
    store_writable: IntGauge [] "headend_store_writable"
        "Whether the store in the state directory takes writes: 1, or 0 while its disk is full \
            or read-only.";
    tasks: IntGauge [] "headend_tasks"
        "Tasks of the program that have not ended.";
    tls_expiry: IntGaugeVec ["certificate"] "headend_tls_certificate_expiry_seconds"
        "When a certificate of the listeners expires, in seconds since 1970, by its file."
        documented as "When a certificate of `[[server.tls]]` expires, in seconds since 1970, by its file";
    tls_failures: IntCounter [] "headend_tls_reload_failures_total"
        "Changed certificates that could not be used, so that the one before stays in force.";
    upstream_bytes: IntCounterVec ["upstream", "direction"] "headend_upstream_bytes_total"
        "Bytes exchanged with an upstream; direction is seen from headend.";
    upstream_cpu: CounterVec ["upstream"] "headend_upstream_cpu_seconds_total"
        "CPU time of an upstream's processes, as far as a scrape has seen them.";
    upstream_duration: HistogramVec ["upstream", "method"] "headend_upstream_duration_seconds"
        "Time that the upstream took to answer a call." in CALLS;
    faults: IntCounterVec ["upstream", "fault"] "headend_upstream_faults_total"
        "Violations of the protocol by an upstream, by kind.";
    processes: IntGaugeVec ["upstream"] "headend_upstream_processes"
        "Processes of an upstream that headend started and that have not ended.";
    reserved: IntCounterVec ["upstream", "kind"] "headend_upstream_reserved_total"
        "Reserved words of the gateway that an upstream used: removed keys of _meta, replaced \
            errors."
        documented as "Reserved words of the gateway that an upstream used: removed keys of \
            `_meta` (`meta`), replaced errors (`error`)";
    upstream_memory: IntGaugeVec ["upstream"] "headend_upstream_resident_memory_bytes"
        "Resident memory of an upstream's processes; pages that several of them share count for \
            each.";
    restarts: IntCounterVec ["upstream"] "headend_upstream_restarts_total"
        "Restarts and reconnects of an upstream that had ended.";
    upstream_sessions: IntGaugeVec ["upstream"] "headend_upstream_sessions"
        "Sessions or processes that an upstream has for one client or caller alone.";
    upstream_start: GaugeVec ["upstream"] "headend_upstream_start_duration_seconds"
        "Time that the last start of an upstream took until it was ready.";
    state: IntGaugeVec ["upstream", "state"] "headend_upstream_state"
        "The state of an upstream: 1 for the state that it is in, 0 for the others.";
}
