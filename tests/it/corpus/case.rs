//! One case of the corpus: its bytes, its expectations, its requirements.

use std::fs;
use std::path::Path;

use data_encoding::BASE64;
use serde_json::Value;

/// Texts in a case, with the missing feature that each requires.
const MISSING: &[(&str, &str)] = &[
    ("${TASK", "a task of a modern server: `a_task_id_is_good_for_its_caller_alone` of the tests with peers"),
    ("${JWT_", "callers by JWT are not built"),
    ("${TOKEN_EXPIRED}", "callers by JWT are not built"),
    ("${TOKEN_WRONG_AUD}", "callers by JWT are not built"),
    ("${TOKEN_READ_SCOPE}", "callers by JWT are not built"),
    ("auth mode jwt", "callers by JWT are not built"),
    (
        "${STATE_EXPIRED}",
        "a state is good for ten minutes, which no test waits; src/core/engine/sealed/state.rs tests its end on a clock of its own",
    ),
    (
        "[policy.ask]",
        "on purpose: there is no key that leaves the client's form as the only way; a client that cannot be asked is \
         told how else its call can be approved",
    ),
];

/// A line of the corpus.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) transport: String,
    pub(super) era: String,
    pub(super) why: String,
    value: Value,
    /// The line and its decoded parts, in which placeholders are searched.
    haystack: String,
}

impl Case {
    pub(super) fn load() -> Vec<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-inputs.jsonl");
        fs::read_to_string(path).unwrap().lines().map(Self::parse).collect()
    }

    fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let mut haystack = line.to_owned();
        for encoded in [&value["raw_b64"], &value["body_b64"], &value["raw_gen"]["prefix_b64"]] {
            haystack.push_str(&String::from_utf8_lossy(&decode(encoded)));
        }
        let (id, transport, era, why) = (text("id"), text("transport"), text("era"), text("why"));
        Self { id, transport, era, why, value, haystack }
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self.transport.as_str(), "http" | "http-raw" | "http2-raw" | "http+stdio")
    }

    /// Returns whether the case expects the end of a stream and not of its connection, which
    /// HTTP/2 over TLS has and plain HTTP/1.1 has not.
    pub(super) fn has_streams(&self) -> bool {
        self.expect("h2_stream_error").is_some()
    }

    pub(super) fn is_upstream(&self) -> bool {
        matches!(self.transport.as_str(), "upstream-stdio" | "upstream-http")
    }

    pub(super) fn is_stdio(&self) -> bool {
        matches!(self.transport.as_str(), "stdio" | "http+stdio")
    }

    /// Returns the reason why the case cannot be played.
    pub(super) fn needs_what_is_missing(&self) -> Option<&'static str> {
        MISSING.iter().find(|(text, _)| self.mentions(text)).map(|(_, why)| *why)
    }

    pub(super) fn mentions(&self, text: &str) -> bool {
        self.haystack.contains(text)
    }

    pub(super) fn expect(&self, name: &str) -> Option<&Value> {
        self.value["expect"].get(name)
    }

    pub(super) fn expects(&self, name: &str) -> bool {
        self.expect(name) == Some(&Value::Bool(true))
    }

    /// Returns a member of the case itself; null if it is absent.
    pub(super) fn member(&self, name: &str) -> &Value {
        &self.value[name]
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.value[name].as_str().unwrap_or_default()
    }

    /// Returns the time limit for the answer or the end, in milliseconds.
    pub(super) fn within_ms(&self) -> u64 {
        self.expect("within_ms").and_then(Value::as_u64).unwrap_or(SOON_MS)
    }

    /// Returns the revision of the session that the case needs.
    pub(super) fn revision(&self) -> &'static str {
        ["2024-11-05", "2025-03-26", "2025-06-18"].into_iter().find(|known| *known == self.era).unwrap_or("2025-11-25")
    }

    /// Returns the bytes of a raw case, with placeholders.
    pub(super) fn raw(&self) -> Vec<u8> {
        if self.transport == "http2-raw" {
            return self.frames();
        }
        let generated = &self.value["raw_gen"];
        if generated.is_null() {
            return decode(&self.value["raw_b64"]);
        }
        let count = usize::try_from(generated["count"].as_u64().unwrap()).unwrap();
        let mut bytes = decode(&generated["prefix_b64"]);
        bytes.extend(decode(&generated["repeat_b64"]).repeat(count));
        bytes.extend(decode(&generated["suffix_b64"]));
        bytes
    }

    /// Returns the first bytes of an HTTP/2 client that does not ask whether the server speaks it.
    fn frames(&self) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        match self.text("h2_gen") {
            "preface then 50 bytes 0xff" => bytes.extend([0xff; 50]),
            "SETTINGS and PING floods 1e5" => {
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
                bytes.extend([&settings[..], &ping[..]].concat().repeat(100_000));
            }
            other => panic!("{}: the runner does not know how to generate {other}", self.id),
        }
        bytes
    }

    /// Returns the body, with placeholders.
    pub(super) fn body(&self) -> Vec<u8> {
        if let Some(body) = self.value["body"].as_str() {
            return body.as_bytes().to_vec();
        }
        let generated = &self.value["body_gen"];
        if generated.is_null() {
            return decode(&self.value["body_b64"]);
        }
        let text = |name: &str| generated[name].as_str().unwrap_or_default();
        let count = usize::try_from(generated["count"].as_u64().unwrap_or(0)).unwrap();
        let inner = match text("kind") {
            "repeat" => text("unit").repeat(count),
            "nest" => format!("{}{}{}", text("open").repeat(count), text("leaf"), text("close").repeat(count)),
            "gzip-bomb" => return gzip_of_zeros(generated["inflated"].as_u64().unwrap()),
            other => panic!("{}: the runner does not know how to generate {other}", self.id),
        };
        let body = match generated["wrap"].as_str() {
            Some(wrap) => wrap.replacen('@', &inner, 1),
            None => inner,
        };
        body.into_bytes()
    }

    /// Returns whether the body is sent in chunks.
    pub(super) fn chunked(&self) -> bool {
        self.value["body_gen"]["chunked"] == Value::Bool(true)
    }
}

/// Time limit for an answer, in milliseconds, if the case sets none.
const SOON_MS: u64 = 5_000;

fn decode(text: &Value) -> Vec<u8> {
    text.as_str().map(|text| BASE64.decode(text.as_bytes()).unwrap()).unwrap_or_default()
}

/// Creates a gzip member that inflates to this many zero bytes: one literal, then copies of 258
/// bytes at distance one.
///
/// The checksum is left out, because no reader should get as far as checking it.
pub(super) fn gzip_of_zeros(inflated: u64) -> Vec<u8> {
    let mut bits = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], bit: 0 };
    bits.push(0b011, 3); // The last block, fixed codes.
    bits.push_code(0x30, 8); // Literal 0.
    for _ in 0..inflated / 258 {
        bits.push_code(0b1100_0101, 8); // Length 258.
        bits.push_code(0, 5); // Distance 1.
    }
    bits.push_code(0, 7); // End of block.
    bits.bytes.extend([0; 8]);
    bits.bytes
}

struct Bits {
    bytes: Vec<u8>,
    bit: u32,
}

impl Bits {
    /// Appends bits, starting with the lowest.
    fn push(&mut self, value: u32, count: u32) {
        for n in 0..count {
            if self.bit == 0 {
                self.bytes.push(0);
            }
            if value >> n & 1 == 1 {
                *self.bytes.last_mut().unwrap() |= 1 << self.bit;
            }
            self.bit = (self.bit + 1) % 8;
        }
    }

    /// Appends a Huffman code, starting with the highest bit.
    fn push_code(&mut self, code: u32, count: u32) {
        self.push(code.reverse_bits() >> (32 - count), count);
    }
}
