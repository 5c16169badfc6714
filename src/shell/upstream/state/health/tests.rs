use http::StatusCode;

use super::UpstreamState::*;
use super::*;
use crate::telemetry::metrics::Metrics;

fn health() -> (Metrics, UpstreamHealth) {
    let metrics = Metrics::new().unwrap();
    let health = UpstreamHealth::new(UpstreamName::parse("crm").unwrap(), metrics.upstream("crm"), true);
    (metrics, health)
}

fn in_doubt(health: &UpstreamHealth) -> bool {
    health.signs.is_in_doubt()
}

fn status(code: u16) -> HttpError {
    HttpError::Status(StatusCode::from_u16(code).unwrap())
}

#[test]
fn the_time_of_a_start_is_shown_once_it_has_led_to_a_ready_upstream() {
    let (metrics, health) = health();
    let is_timed = || metrics.render().contains(r#"headend_upstream_start_duration_seconds{upstream="crm"}"#);
    health.enter(Starting);
    health.enter(Down);
    assert!(!is_timed(), "it failed");
    health.enter(Starting);
    health.enter(Ready);
    assert!(is_timed());
}

#[test]
fn an_upstream_without_a_connection_is_down_until_it_answers_or_is_ready() {
    let (metrics, health) = health();
    health.enter(Starting);
    health.unreached("connect: refused");
    assert!(health.state() == Starting && !in_doubt(&health), "its start has not failed yet");
    health.enter(Ready);
    health.unreached("connect: refused");
    assert!(metrics.render().contains(r#"headend_upstream_state{state="down",upstream="crm"} 1"#));
    assert_eq!((health.state(), health.last_error().unwrap().as_str()), (Down, "connect: refused"));
    assert!(in_doubt(&health) && health.begin_look() && !in_doubt(&health));
    health.answered();
    assert_eq!(health.state(), Ready);
    health.unreached("connect: refused");
    assert!(health.take_told() && !health.take_told(), "the log says so already");
    health.enter(Down);
    for next in [Starting, Down, Starting] {
        health.enter(next);
        assert_eq!(health.state(), Down, "another attempt is no change");
    }
    health.enter(Ready);
    assert!(health.state() == Ready && !health.take_told(), "the next time is news");
}

#[test]
fn a_server_in_doubt_is_not_down() {
    let (_, health) = health();
    health.enter(Ready);
    for (error, doubt) in [
        (HttpError::Broken("reset".to_owned()), true),
        (HttpError::Connect("no session".to_owned()), true),
        (HttpError::NoDescriptor("too many open files".to_owned()), false),
        (HttpError::Protocol("an answer too large".to_owned()), false),
        (status(404), false),
        (status(500), false),
    ] {
        health.unanswered(&error);
        assert_eq!((health.state(), in_doubt(&health)), (Ready, doubt), "{error:?}");
        health.begin_look();
        health.answered();
    }
    health.doubt("a call was not answered in time");
    assert!(health.state() == Ready && in_doubt(&health));
}

#[test]
fn only_failures_in_a_row_are_a_doubt() {
    let (_, health) = health();
    health.enter(Ready);
    for _ in 0..10 {
        health.unanswered(&status(503));
        health.unanswered(&status(500));
        health.unanswered(&status(404));
        assert!(!in_doubt(&health));
    }
    (0..3).for_each(|_| health.unanswered(&status(503)));
    assert!(in_doubt(&health) && health.last_error().unwrap().contains("503"));
}

fn stands(health: &UpstreamHealth, standing: CredentialStanding) {
    health.stands(standing, || format!("{standing:?}"));
}

#[test]
fn refused_credentials_are_shown_until_an_attempt_finds_something_else() {
    let (_, health) = health();
    health.enter(Starting);
    stands(&health, CredentialStanding::Refused);
    health.enter(Down);
    health.enter(Starting);
    assert_eq!((health.state(), health.remedy()), (Refused, None), "an attempt forgets why the last one failed");
    health.enter(Down);
    assert_eq!(health.state(), Down);
    health.enter(Starting);
    health.lasts("mend it");
    assert_eq!(health.state(), Down);
    health.enter(Down);
    assert_eq!(health.state(), Misconfigured);
}

#[test]
fn a_process_that_starts_again_is_starting() {
    let metrics = Metrics::new().unwrap();
    let health = UpstreamHealth::new(UpstreamName::parse("git").unwrap(), metrics.upstream("git"), false);
    for _ in 0..2 {
        health.enter(Ready);
        health.doubt("a call was not answered in time");
        health.enter(Down);
        health.enter(Starting);
        assert_eq!((health.state(), in_doubt(&health)), (Starting, false));
    }
}

#[test]
fn a_process_that_failed_to_start_is_down_during_its_next_starts() {
    let metrics = Metrics::new().unwrap();
    let health = UpstreamHealth::new(UpstreamName::parse("git").unwrap(), metrics.upstream("git"), false);
    health.enter(Starting);
    assert_eq!(health.state(), Starting, "its first start may be slow");
    for next in [Down, Starting, Down, Starting] {
        health.enter(next);
        assert_eq!(health.state(), Down, "{next}");
    }
    // A process that ends is `starting` for a moment before it is `down`.
    for (next, shown) in [(Ready, Ready), (Starting, Starting), (Down, Down), (Starting, Starting)] {
        health.enter(next);
        assert_eq!(health.state(), shown, "after {next}");
    }
}

#[test]
fn an_upstream_needs_login_from_a_refusal_to_the_next_other_answer() {
    let (metrics, health) = health();
    let shown = |state: UpstreamState| metrics.render().contains(&format!(r#"state="{state}",upstream="crm"}} 1"#));
    health.enter(Starting);
    stands(&health, CredentialStanding::NeedsLogin);
    assert_eq!(health.state(), Starting, "its handshake is not over");
    health.enter(Down);
    assert!(health.state() == NeedsLogin && shown(NeedsLogin));
    assert!(health.remedy().unwrap().contains("`headend login crm`"));
    health.enter(Starting);
    health.enter(Ready);
    assert!(health.state() == Ready && shown(Ready));
    for (standing, state) in [(CredentialStanding::Refused, Refused), (CredentialStanding::LoginExpired, LoginExpired)]
    {
        stands(&health, standing);
        assert!(shown(state), "at a call: {state}");
        stands(&health, CredentialStanding::Admitted);
        assert!(shown(Ready));
    }
    stands(&health, CredentialStanding::NeedsLogin);
    health.enter(Stopped);
    assert_eq!(health.state(), Stopped);
}

#[test]
fn a_cause_that_lasts_is_a_state_of_its_own_until_the_next_start() {
    let (metrics, health) = health();
    let shown = |state: UpstreamState| metrics.render().contains(&format!(r#"state="{state}",upstream="crm"}} 1"#));
    health.enter(Starting);
    health.lasts("install it");
    assert_eq!(health.state(), Starting);
    health.enter(Down);
    assert!(health.state() == Misconfigured && shown(Misconfigured) && !shown(Down));
    assert_eq!(health.remedy(), Some("install it".into()));
    health.enter(Starting);
    health.enter(Down);
    assert!(health.state() == Down && shown(Down) && !shown(Misconfigured));
    assert_eq!(health.remedy(), None);
    health.lasts("too late");
    assert_eq!((health.remedy(), health.state()), (None, Down));
    health.retire();
    health.enter(Stopped);
    assert!(health.state() == Stopped && shown(Down), "its series are another's");
}
