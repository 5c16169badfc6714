//! Messages as slices that are written one after the other. A large result is never copied into its
//! envelope, so it needs no memory beyond the bytes counted when they were read.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::base::budget::{BudgetRoom, ByteBudget, COUNTED_FROM};
use crate::engine::answer::RequestAnswer;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{encode_error, encode_result, error_head, result_head};
use crate::wire::sse;

use std::sync::Arc;

/// Size in bytes from which results are written beside their envelope instead of being copied into
/// it.
const APART_FROM: usize = COUNTED_FROM;

/// The slices of a message or an event. Empty slices are skipped.
#[derive(Clone, Debug, Default)]
pub struct MessageSlices([Bytes; 5]);

impl From<Bytes> for MessageSlices {
    fn from(whole: Bytes) -> Self {
        Self([whole, Bytes::new(), Bytes::new(), Bytes::new(), Bytes::new()])
    }
}

impl MessageSlices {
    /// Encodes the response to the request with this id.
    pub fn answer(id: &RawJson, answer: RequestAnswer) -> Self {
        let end = Bytes::from_static(b"}");
        match answer.outcome {
            Ok(result) if result.bytes().len() < APART_FROM => encode_result(id, result.bytes()).into(),
            Ok(result) => Self([result_head(id), result.into_bytes(), end, Bytes::new(), Bytes::new()]),
            Err(error) if error.bytes().len() < APART_FROM => encode_error(Some(id), &error).into(),
            Err(error) => Self([error_head(id), error.into_bytes(), end, Bytes::new(), Bytes::new()]),
        }
    }

    /// Wraps the message, of up to three slices, in an event with this id and name.
    pub fn event(self, id: Option<&str>, name: Option<&str>) -> Self {
        let Self([head, body, tail, ..]) = self;
        if head.len() + body.len() + tail.len() < APART_FROM {
            return sse::event(id, name, &[&head, &body, &tail]).into();
        }
        Self([sse::event_head(id, name), head, body, tail, Bytes::from_static(b"\n\n")])
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Removes and returns the first slice that is not empty.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.0.iter_mut().find(|slice| !slice.is_empty()).map(std::mem::take)
    }

    /// Iterates over the slices that are not empty.
    pub fn slices(mut self) -> impl Iterator<Item = Bytes> {
        std::iter::from_fn(move || self.pop())
    }

    /// Appends all bytes to a buffer.
    pub fn copy_to(&self, out: &mut BytesMut) {
        self.0.iter().for_each(|slice| out.put_slice(slice));
    }
}

/// A message in the queue of a client that may read slowly. Small messages, of which a queue has
/// many, are counted in the budget here; the bytes of large ones are counted already.
#[derive(Debug)]
pub struct QueuedMessage {
    pub message: MessageSlices,
    _room: Option<BudgetRoom>,
}

impl QueuedMessage {
    pub fn new(message: impl Into<MessageSlices>, budget: &Arc<ByteBudget>) -> Self {
        let message = message.into();
        let length = message.len();
        let room = (length < COUNTED_FROM).then(|| budget.hold_small(length));
        Self { message, _room: room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pieces: MessageSlices) -> String {
        let length = pieces.len();
        let bytes: Vec<u8> = pieces.slices().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(bytes.len(), length);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn large_and_small_answers_are_written_alike() {
        let id = RawJson::trusted("7");
        for length in [1, COUNTED_FROM - 2, COUNTED_FROM + 1] {
            let text = format!("\"{}\"", "x".repeat(length));
            let ok = || RequestAnswer::ok(RawJson::trusted(text.clone()));
            let failed = || RequestAnswer::failed(RawJson::trusted(text.clone()));
            let (result, error) = (
                format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{text}}}"),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{text}}}"),
            );
            assert_eq!(whole(MessageSlices::answer(&id, ok())), result);
            assert_eq!(whole(MessageSlices::answer(&id, failed())), error);
            assert_eq!(
                whole(MessageSlices::answer(&id, ok()).event(Some("a-1"), Some("message"))),
                format!("id: a-1\nevent: message\ndata: {result}\n\n")
            );
        }
    }

    #[test]
    fn a_large_result_is_not_copied() {
        let result = Bytes::from(vec![b'1'; COUNTED_FROM]);
        let answer = RequestAnswer::ok(RawJson::trusted(result.clone()));
        let event = MessageSlices::answer(&RawJson::trusted("7"), answer).event(None, None);
        assert!(event.slices().any(|slice| slice.as_ptr() == result.as_ptr()));
    }
}
