//! Approvals that nobody answered count by client, and the blocks that come of them can be ended.

use super::*;

/// Opens a prompt of the client of that name and has it dismissed.
fn dismissed(desk: &mut Desk, asked: &Asked, client: &str, n: u8, now: Wall) -> Result<(), Refused> {
    let id = PromptId::new([n; 16]);
    desk.open(asked.clone(), by(client), id, now, 900, None)?;
    desk.answer(&id, Answer::Dismiss, Evidence::Client, "client", now, Arc::from("")).unwrap();
    Ok(())
}

fn by(client: &str) -> Shown {
    shown().asked_by(ClientName::read(&RawJson::trusted(format!(r#"{{"name":"{client}"}}"#))))
}

/// Has three prompts of the client dismissed, long enough after one another to be three strikes.
fn blocked(desk: &mut Desk, client: &str, now: &mut Wall) {
    for n in 0..3 {
        *now += 60;
        dismissed(desk, &asked(), client, n, *now).unwrap();
    }
}

#[test]
fn what_one_client_leaves_unanswered_blocks_no_other_client_of_its_caller() {
    let (mut desk, mut now) = (desk(), 0);
    blocked(&mut desk, "codex", &mut now);
    assert!(matches!(dismissed(&mut desk, &asked(), "codex", 9, now), Err(Refused::Embargo { .. })));
    for _ in 0..2 {
        dismissed(&mut desk, &asked(), "claude-code", 9, now).unwrap();
    }
    dismissed(&mut desk, &of("files__other"), "codex", 9, now + 60).expect("another item");
    let per_minute = dismissed(&mut desk, &of("files__third"), "claude-code", 9, now);
    assert_eq!(per_minute, Ok(()), "those of the other client do not count");
}

#[test]
fn beyond_eight_names_the_clients_of_a_caller_count_as_one() {
    let (mut desk, mut now) = (desk(), 0);
    for n in 0..8 {
        now += 60;
        dismissed(&mut desk, &asked(), &format!("name {n}"), n, now).unwrap();
    }
    for n in 8..11 {
        now += 60;
        dismissed(&mut desk, &asked(), &format!("name {n}"), n, now).unwrap();
    }
    let new = dismissed(&mut desk, &asked(), "name 11", 11, now);
    assert!(matches!(new, Err(Refused::Embargo { .. })), "a new name begins nothing anew: {new:?}");
    dismissed(&mut desk, &asked(), "name 0", 12, now).expect("it is counted apart");
    let other = Asked { caller: Arc::from("dev"), ..asked() };
    dismissed(&mut desk, &other, "name 11", 13, now).expect("another caller");
    assert_eq!(desk.blocks(now)[0].client, None);
}

#[test]
fn open_approvals_are_bounded_by_caller_whatever_its_clients_are_called() {
    let mut desk = Desk::new(DeskLimits { max_open: 2, per_minute: 3 });
    let mut open = |client: &str, n: u8| {
        let item = of(&format!("files__{n}"));
        desk.open(item, by(client), PromptId::new([n; 16]), 0, 900, None).map(drop)
    };
    open("a", 1).unwrap();
    open("b", 2).unwrap();
    assert!(matches!(open("c", 3), Err(Refused::TooManyOpen { open: 2, .. })));
}

#[test]
fn a_block_is_listed_while_it_lasts_and_ends_when_an_operator_says_so() {
    let (mut desk, mut now) = (desk(), 0);
    blocked(&mut desk, "codex", &mut now);
    let blocks = desk.blocks(now);
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((&*block.caller, block.client.as_deref(), &*block.item), ("ci", Some("codex"), "files__delete"));
    assert_eq!(block.until, now + 600);
    assert!(desk.blocks(now + 600).is_empty());
    assert_eq!(desk.end_block(&PromptId::new([9; 16]), now), None);
    assert_eq!(desk.end_block(&block.id, now).as_ref(), Some(block));
    assert_eq!(desk.end_block(&block.id, now), None);
    for n in 0..2 {
        now += 1;
        dismissed(&mut desk, &asked(), "codex", n, now).expect("what was before is forgotten");
    }
}
