//! Writers that are killed.

use std::io::Read as _;
use std::process::{Command, Stdio};

use super::*;

/// Environment variable that names the state directory to the writer that is killed.
const CHILD: &str = "HEADEND_AUDIT_TEST_CHILD";

/// The child process of the test below; does nothing in the test run itself.
#[tokio::test]
async fn the_child_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let options = AuditLogOptions {
        folder: PathBuf::from(&dir).join("audit"),
        chain: MAIN.to_owned(),
        arguments: true,
        strict: false,
        deny: true,
        max_segment: 300_000,
        retain: RetentionBounds::default(),
    };
    let audit = AuditLog::open(options, Db::open(Path::new(&dir)).unwrap(), Metrics::new().unwrap().audit()).unwrap();
    for call in 0.. {
        let arguments = crate::wire::json::raw::RawJson::trusted(format!(r#"{{"a":"{}"}}"#, "x".repeat(3000)));
        let entry = AuditEntry { arguments: Some(arguments), ..entry(call) };
        audit.record(entry, false).written().await.unwrap();
        if call % 500 == 0 {
            let entry = entry_of_proof();
            audit.record(entry, true).written().await.unwrap();
            if call % 1000 == 0 {
                // In some rounds the store has a head, in others it has none.
                audit.flush().await;
            }
            // A printed record is on disk.
            println!("durable");
        }
    }
}

fn entry_of_proof() -> AuditEntry {
    AuditEntry::gateway("proof", "")
}

#[test]
fn a_killed_writer_loses_nothing_that_was_durable_and_the_next_goes_on() {
    let place = Place::new();
    let (mut proofs, mut torn) = (0, 0);
    for round in 0_u32..100 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "store::audit::tests::crash::the_child_writes_until_it_is_killed", "--nocapture"]);
        child.env(CHILD, place.0.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        // Kill the child once it writes, at a moment that differs from round to round.
        let mut said = Vec::new();
        let mut some = [0; 64];
        while !String::from_utf8_lossy(&said).contains("durable") {
            let read = out.read(&mut some).unwrap();
            assert_ne!(read, 0, "round {round}: the writer ended: {}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&some[..read]);
        }
        std::thread::sleep(Duration::from_micros(u64::from(round) * 7919 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        out.read_to_end(&mut said).unwrap();
        proofs += String::from_utf8_lossy(&said).matches("durable").count();
        let verdict = place.verdict();
        assert!(
            verdict.strip_prefix("main ").is_some_and(|seq| seq.parse::<u64>().is_ok()),
            "round {round}: {verdict}"
        );
        torn += usize::from(!place.text().ends_with('\n'));
        // The log is kept small, as by an operator who archives it.
        if round % 10 == 9 {
            assert!(place.text().matches(r#""result":"proof""#).count() >= proofs, "round {round}");
            fs::remove_dir_all(place.folder().path()).unwrap();
            place.db().damage("DELETE FROM audit_heads");
            proofs = 0;
        }
    }
    eprintln!("{torn} of 100 logs ended in half a line");
}
