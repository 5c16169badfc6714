use super::*;

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A conversation, and the bytes that it has for both sides.
#[derive(Default)]
struct RelayOutput {
    talk: RelayConversation,
    daemon: BytesMut,
    client: BytesMut,
}

impl RelayOutput {
    fn client_says(&mut self, line: &str) {
        let mut lines = LineDecoder::new(1024);
        push(lines.buffer(), line.as_bytes());
        self.talk.hear_client(&mut lines, &mut self.daemon, &mut self.client);
    }

    fn daemon_says(&mut self, line: &str) {
        let mut lines = LineDecoder::new(1024);
        push(lines.buffer(), line.as_bytes());
        self.talk.hear_daemon(&mut lines, &mut self.client, &mut self.daemon);
    }

    fn take(bytes: &mut BytesMut) -> Vec<String> {
        String::from_utf8_lossy(&bytes.split()).lines().map(str::to_owned).collect()
    }

    fn at_daemon(&mut self) -> Vec<String> {
        Self::take(&mut self.daemon)
    }

    fn at_client(&mut self) -> Vec<String> {
        Self::take(&mut self.client)
    }

    fn greeted() -> Self {
        let mut both = Self::default();
        both.client_says(INITIALIZE);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        both.client_says(INITIALIZED);
        both.at_client();
        both.at_daemon();
        both
    }
}

#[test]
fn a_call_in_flight_is_answered_and_one_that_waits_is_made_after_the_handshake() {
    let mut both = RelayOutput::greeted();
    both.client_says(CALL);
    assert_eq!(both.at_daemon(), [CALL]);
    both.talk.lost(&mut both.client);
    let told = both.at_client();
    assert!(told.len() == 1 && told[0].contains(r#""id":7"#) && told[0].contains(r#""executed":"unknown""#));
    both.client_says(CALL);
    assert!(both.at_daemon().is_empty() && both.talk.waiting() > 0);
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED, CALL]);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{"again":true}}"#);
    assert!(both.at_client().is_empty(), "the client has had its answer");
    both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(both.at_client().len(), 1);
    both.talk.end(&mut both.client);
    assert!(both.at_client().is_empty(), "nothing is open");
}

#[test]
fn requests_that_waited_for_too_long_and_all_after_them_are_refused_as_not_made() {
    let mut both = RelayOutput::greeted();
    both.talk.lost(&mut both.client);
    both.client_says(CALL);
    both.talk.give_up_waiting(&mut both.client);
    both.client_says(&CALL.replace('7', "8"));
    let told = both.at_client();
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, id) in told.iter().zip([7, 8]) {
        assert!(line.contains(&format!(r#""id":{id}"#)) && line.contains(r#""executed":"no""#), "{line}");
    }
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED]);
}

#[test]
fn a_handshake_that_waited_is_said_once_and_one_that_failed_is_not_repeated() {
    let mut both = RelayOutput::default();
    both.talk.lost(&mut both.client);
    both.client_says(INITIALIZE);
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE]);
    both.talk.lost(&mut both.client);
    assert!(both.at_client()[0].contains(r#""id":1"#));
    both.talk.found(&mut both.daemon);
    assert!(both.at_daemon().is_empty());
}

#[test]
fn a_daemon_is_sent_what_the_stand_in_has_not_answered() {
    let mut both = RelayOutput { talk: RelayConversation::with_stand_in(), ..RelayOutput::default() };
    both.client_says(INITIALIZE);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    both.client_says(INITIALIZED);
    both.client_says(CALL);
    both.client_says(&CALL.replace('7', "8"));
    both.client_says(&CALL.replace('7', "9"));
    both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    both.client_says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#);
    both.at_daemon();
    both.at_client();
    both.talk.leave_stand_in(&mut both.client);
    let told = both.at_client();
    assert!(told.len() == 3 && told[0].contains("notifications/tools/list_changed"), "{told:?}");
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED, &CALL.replace('7', "8")]);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(both.at_client().is_empty(), "the stand-in has answered it");
    both.daemon_says(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
    assert_eq!(both.at_client().len(), 1);
}

#[test]
fn a_handshake_that_the_stand_in_has_not_answered_is_the_daemons() {
    let mut both = RelayOutput { talk: RelayConversation::with_stand_in(), ..RelayOutput::default() };
    both.client_says(INITIALIZE);
    both.at_daemon();
    both.talk.leave_stand_in(&mut both.client);
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE]);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(both.at_client().len(), 1);
}

#[test]
fn after_the_end_of_the_input_calls_are_answered_and_the_daemon_asks_in_vain() {
    let mut both = RelayOutput::greeted();
    both.client_says(CALL);
    both.client_says(r#"{"jsonrpc":"2.0","id":8,"method":"subscriptions/listen","params":{}}"#);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}"#);
    both.at_daemon();
    both.at_client();
    both.talk.end_input(&mut both.daemon);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":"q2","method":"roots/list"}"#);
    let mut told = both.at_daemon();
    assert!(told.remove(0) == INPUT_OVER && told[0].contains(r#""requestId":8"#), "{told:?}");
    assert!(told[1].contains(r#""id":"q1""#) && told[2].contains(r#""id":"q2""#), "{told:?}");
    assert!(told[1..].iter().all(|line| line.contains("\"error\"")) && told.len() == 3, "{told:?}");
    assert!(!both.talk.is_idle() && both.at_client().is_empty());
    both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert!(both.talk.is_idle() && both.at_client().len() == 1);
}

#[test]
fn an_answer_reaches_only_the_daemon_that_asked() {
    let mut both = RelayOutput::greeted();
    let (question, answer) =
        (r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#, r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#);
    both.daemon_says(question);
    both.talk.lost(&mut both.client);
    both.talk.found(&mut both.daemon);
    both.at_daemon();
    both.client_says(answer);
    assert!(both.at_daemon().is_empty());
    both.daemon_says(question);
    both.client_says(answer);
    both.client_says(answer);
    assert_eq!(both.at_daemon(), [answer]);
}

#[test]
fn a_daemon_that_leaves_answers_its_calls_and_further_ones_wait_for_the_next() {
    let mut both = RelayOutput::greeted();
    let (second, third) = (CALL.replace('7', "8"), CALL.replace('7', "9"));
    both.client_says(CALL);
    both.client_says(&second);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#);
    both.at_client();
    both.at_daemon();
    both.daemon_says(LEAVING);
    assert_eq!((both.at_daemon(), both.at_client().len()), (vec![LEFT.to_owned()], 0));
    both.client_says(&third);
    let answer = r#"{"jsonrpc":"2.0","id":"q","result":{}}"#;
    let cancel =
        |id: u64| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    both.client_says(answer);
    both.client_says(&cancel(8));
    both.client_says(&cancel(9));
    assert_eq!(both.at_daemon(), [answer.to_owned(), cancel(8)]);
    both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(both.at_client().len(), 1);
    both.talk.lost(&mut both.client);
    let told = both.at_client();
    assert!(told.len() == 1 && told[0].contains(r#""id":8"#), "{told:?}");
    both.talk.found(&mut both.daemon);
    assert_eq!(both.at_daemon(), [INITIALIZE.to_owned(), INITIALIZED.to_owned(), third, cancel(9)]);
    assert!(!both.talk.is_idle());
}
