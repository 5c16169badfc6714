//! Tests that the cost of foreign bytes is linear: sixteen times as many bytes may cost about
//! sixteen times as much, for any content.

use std::time::Duration;

use super::{TARGETS, run};

const SMALL: usize = 1024;
const FACTOR: u32 = 16;
/// Most that the larger input may cost, as a multiple of the smaller one. A quadratic cost would be
/// 256 times as much.
const MOST: u32 = 3 * FACTOR;
/// Targets that read files of the operator. The upstreams and problems in them are compared with
/// each other, which is quadratic in small numbers.
const FILES: [&str; 2] = ["configuration", "import"];
/// A large input that costs less than this is not measured further: no quadratic cost hides in it.
const CHEAP: Duration = Duration::from_millis(10);

/// A function that creates a text of about this many bytes.
type TextShape = fn(usize) -> String;

/// Texts that are known to make parsers go back and forth.
const SHAPES: &[(&str, TextShape)] = &[
    ("members", |n| object((0..n / 10).map(|k| format!("\"k{k}\":0")))),
    ("members of one beginning", |n| object((0..n / 40).map(|k| format!("\"{}{k}\":0", "k".repeat(30))))),
    ("members with escapes", |n| object((0..n / 20).map(|k| format!("\"\\u0061{k}\":\"\\n\"")))),
    ("lists in lists", |n| format!("{}{}", "[".repeat(n / 2), "]".repeat(n / 2))),
    ("objects in objects", |n| format!("{}1{}", "{\"a\":".repeat(n / 6), "}".repeat(n / 6))),
    ("many numbers", |n| format!("[1{}]", ",1".repeat(n / 2))),
    ("one long number", |n| "1".repeat(n)),
    ("one long text", |n| format!("\"{}\"", "x".repeat(n))),
    ("escapes", |n| format!("\"{}\"", "\\u0061".repeat(n / 6))),
    ("backslashes", |n| "\\".repeat(n)),
    ("quotes", |n| "\"".repeat(n)),
    ("opened and never closed", |n| "{".repeat(n)),
    ("blanks", |n| " ".repeat(n)),
    ("line feeds", |n| "\n".repeat(n)),
    ("carriage returns", |n| "\r".repeat(n)),
    ("lines of one event", |n| "data: x\n".repeat(n / 8)),
    ("events", |n| "id: 1\ndata: {}\n\n".repeat(n / 16)),
    ("stars", |n| format!("{}b\n{}", "*a".repeat(n / 4), "a".repeat(n / 2))),
    ("a pointer of stars", |n| format!("{}\n{}{}", "/*".repeat(n / 4), "[".repeat(n / 4), "]".repeat(n / 4))),
    ("expressions", |n| format!("{}\n{}", "{+a}-".repeat(n / 10), "a-".repeat(n / 4))),
    ("per cent", |n| "%25".repeat(n / 3)),
    ("hidden letters", |n| "a\u{202e}\u{3164}".repeat(n / 7)),
    ("tools", |n| {
        format!(
            "{{\"tools\":[{}]}}",
            list(n / 60, |k| format!("{{\"name\":\"t{k}\",\"inputSchema\":{{\"type\":\"object\"}}}}"))
        )
    }),
    ("properties", |n| {
        let properties = list(n / 40, |k| format!("\"p{k}\":{{\"type\":\"string\",\"x-mcp-header\":\"p{k}\"}}"));
        format!(
            "{{\"tools\":[{{\"name\":\"t\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{{properties}}}}}}}]}}"
        )
    }),
    ("questions", |n| {
        let asked = list(n / 60, |k| {
            format!("\"q{k}\":{{\"method\":\"elicitation/create\",\"params\":{{\"message\":\"m\"}}}}")
        });
        format!("{{\"resultType\":\"input_required\",\"inputRequests\":{{{asked}}}}}")
    }),
];

fn object(members: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn list(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

/// Returns the processor time of this thread, which does not depend on the load of the machine.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn cost(target: &str, data: &str) -> Duration {
    let before = spent();
    run(target, data.as_bytes());
    spent() - before
}

#[test]
fn what_bytes_cost_grows_with_their_number_alone() {
    let mut broken = Vec::new();
    for (target, _) in TARGETS.iter().filter(|(target, _)| !FILES.contains(target)) {
        for (shape, text) in SHAPES {
            let (small, large) = (text(SMALL), text(SMALL * FACTOR as usize));
            if cost(target, &large) < CHEAP {
                continue;
            }
            let least = |text: &str| (0..3).map(|_| cost(target, text)).min().unwrap();
            let (little, much) = (least(&small), least(&large));
            if much > little * MOST {
                broken.push(format!(
                    "{target}, {shape}: {} bytes cost {little:?}, {} cost {much:?}",
                    small.len(),
                    large.len()
                ));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
