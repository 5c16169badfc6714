//! One page of a list, judged alike whatever the transport of its server.

use crate::catalog::inventory::{Inventory, Next, Reading};
use crate::engine::fault::Fault;
use crate::engine::handshake::message_of;
use crate::wire::raw::RawJson;

/// What follows from the answer to a request for a page.
#[derive(Debug)]
pub(crate) enum Listed {
    /// The next page is behind this cursor.
    Page(String),
    /// The list has been read; a fault where it was not whole.
    Done(Option<Fault>),
}

/// Takes the answer to a request for a page. Of a list that cannot be read the inventory keeps what was known.
pub(crate) fn take(reading: &mut Reading, answer: Result<RawJson, RawJson>, inventory: &mut Inventory) -> Listed {
    let list = reading.list;
    match answer.map(|result| reading.page(&result)) {
        Ok(Ok(Next::Page(cursor))) => Listed::Page(cursor),
        Ok(Ok(Next::Done { items, skipped })) => {
            let fault = (!skipped.is_empty()).then_some(Fault::BadList);
            inventory.replace(list, items);
            inventory.skipped.extend(skipped);
            Listed::Done(fault)
        }
        Ok(Err(error)) => {
            inventory.skipped.push(format!("{}: {error}", list.member()));
            Listed::Done(Some(Fault::BadList))
        }
        // A declared capability does not mean that every method of it works; the list is then empty.
        Err(error) => {
            tracing::debug!(list = list.member(), error = %message_of(&error), "list refused by the upstream");
            inventory.replace(list, Vec::new());
            Listed::Done(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::inventory::ListBounds;
    use crate::mcp::method::List;

    #[test]
    fn a_list_that_is_not_whole_is_a_fault_and_a_refused_one_is_none() {
        let good = r#"{"tools":[{"name":"a"}]}"#;
        for (label, answer, fault, items) in [
            ("whole", Ok(good), None, 1),
            ("one item is none", Ok(r#"{"tools":[{"name":"a"},{"x":1}]}"#), Some(Fault::BadList), 1),
            ("no list", Ok(r#"{"tools":7}"#), Some(Fault::BadList), 2),
            ("refused", Err(r#"{"code":-32601,"message":"no"}"#), None, 0),
        ] {
            let mut inventory = Inventory::default();
            let known = RawJson::trusted(r#"{"tools":[{"name":"x"},{"name":"y"}]}"#);
            let mut reading = Reading::new(List::Tools, ListBounds::default());
            assert!(matches!(take(&mut reading, Ok(known), &mut inventory), Listed::Done(None)), "{label}");
            let mut reading = Reading::new(List::Tools, ListBounds::default());
            let answer = answer.map(RawJson::trusted).map_err(RawJson::trusted);
            let Listed::Done(found) = take(&mut reading, answer, &mut inventory) else { panic!("{label}: one page") };
            assert_eq!((found, inventory.items(List::Tools).len()), (fault, items), "{label}");
            assert_eq!(inventory.skipped.len(), usize::from(fault.is_some()), "{label}");
        }
    }
}
