//! Finds secrets in the texts of hosts: by the name beside them, by their shape, or because the
//! same text is a secret elsewhere.
//!
//! If in doubt, a text is a secret: a harmless text behind a variable costs one line, but a secret
//! in a configuration stays there.

use std::ops::Range;

use crate::config::source::secret::{is_secret_name, is_token};

/// The place of a secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretSpan {
    /// Range in the text, in bytes.
    pub(super) range: Range<usize>,
    /// Name of the option, parameter or header that the secret belongs to; empty if only its shape
    /// shows it.
    pub(super) name: String,
}

/// Words of a name, separated by `_`, `-`, `.` and capitals, that mark its value as secret.
const WORDS: &[&str] = &[
    "pass",
    "pwd",
    "pat",
    "dsn",
    "bearer",
    "sig",
    "signature",
    "jwt",
    "webhook",
    "conn",
    "connstr",
    "connection",
    "connectionstring",
    "sid",
    "session",
    "private",
    "apikey",
    "creds",
    "cred",
    "passphrase",
    "otp",
];

/// Last words of names which, despite the words above, only describe something.
const DESCRIBES: &[&str] = &["file", "path", "dir", "id", "name", "env", "type", "timeout", "limit", "mode", "size"];

/// Values that are no secrets under any name.
const TRIVIAL: &[&str] = &[
    "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "basic", "bearer", "token", "oauth", "oauth2",
    "default", "required", "optional", "enabled", "disabled", "header", "env", "jwt", "apikey", "api-key", "stdin",
];

/// Beginnings of well-known tokens.
const TOKENS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxe-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "whsec_",
    "shpat_",
    "dop_v1_",
    "ntn_",
    "lin_api_",
    "figd_",
    "phc_",
    "phx_",
    "sntrys_",
    "sntryu_",
    "nvapi-",
    "tvly-",
    "hvs.",
    "dckr_pat_",
    "ATATT",
    "PMAK-",
    "AGE-SECRET-KEY-",
    "-----BEGIN",
];
/// Beginnings of tokens that also occur in ordinary words; they need a digit behind them.
const WEAK_TOKENS: &[&str] = &[
    "sk-", "hf_", "npm_", "r8_", "key-", "key_", "token_", "pk_", "api_", "BSA", "pplx-", "gsk_", "xai-", "jina_",
    "re_", "pypi-", "secret_", "fc-", "SG.",
];

/// Addresses whose path is the secret.
const SECRET_PATHS: &[&str] =
    &["hooks.slack.com/services/", "discord.com/api/webhooks/", "/api/mcp/s/", "api.telegram.org/bot"];

/// Options whose value is a header.
const HEADER_OPTIONS: &[&str] = &["-H", "--header", "--headers", "--http-header", "--extra-header"];
/// Options whose value is a user name and a password.
const USER_OPTIONS: &[&str] = &["-u", "--user", "--basic-auth", "--credentials"];
/// Headers without secrets.
const PLAIN_HEADERS: &[&str] = &[
    "accept",
    "accept-language",
    "accept-encoding",
    "cache-control",
    "content-type",
    "origin",
    "referer",
    "user-agent",
];

/// Last words of the names of further headers without secrets.
const PLAIN_WORDS: &[&str] = &["region", "version", "locale", "language", "readonly", "toolsets", "tools", "format"];

/// Returns true if a name marks its value as secret.
fn names_secret(name: &str) -> bool {
    let words: Vec<String> = words_of(name);
    let last = words.last().map(String::as_str).unwrap_or_default();
    let describes = DESCRIBES.contains(&last);
    is_secret_name(name) || name == "PGPASSFILE" || (!describes && words.iter().any(|word| WORDS.contains(&&**word)))
}

/// Splits a name into words in lower case: `DB_Pass`, `db-pass` and `dbPass` alike.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if (before.is_ascii_lowercase() && c.is_ascii_uppercase()) || !c.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns true if a value is no secret even under the name of one.
fn is_trivial(name: &str, value: &str) -> bool {
    let value = value.trim();
    let words = words_of(name);
    let counts =
        !words.iter().any(|word| ["pass", "pwd", "pin", "secret", "key", "otp"].iter().any(|w| word.contains(w)));
    value.is_empty()
        || TRIVIAL.contains(&value.to_ascii_lowercase().as_str())
        || (counts && value.len() <= 7 && value.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns true if the value of a variable or header is a secret or contains one.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    (names_secret(name) && !is_trivial(name, value)) || is_token(value) || !in_text(value).is_empty()
}

/// Returns true if the value of a header is a secret: all are, except for a few known headers with
/// harmless values.
pub(super) fn is_secret_header(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let describes = words_of(&name).last().is_some_and(|last| PLAIN_WORDS.contains(&last.as_str()));
    is_secret(&name, value) || !(describes || PLAIN_HEADERS.contains(&name.as_str()))
}

/// Finds the secrets in each word of a command line.
pub(super) fn in_words(words: &[String]) -> Vec<Vec<SecretSpan>> {
    let mut all = Vec::with_capacity(words.len());
    let mut before = "";
    for word in words {
        let mut spans = in_word(before, word);
        spans.extend(in_text(word));
        all.push(merged(spans));
        before = word;
    }
    all
}

/// Finds secrets by a name in the word itself or by the option before it.
fn in_word(before: &str, word: &str) -> Vec<SecretSpan> {
    let whole = |name: &str| SecretSpan { range: 0..word.len(), name: name.trim_start_matches('-').to_owned() };
    if let Some((name, value)) = word.split_once('=') {
        let start = name.len() + 1;
        if HEADER_OPTIONS.contains(&name) {
            return in_header(value, start);
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_version = value.starts_with('=');
        if name.chars().all(is_name) && names_secret(name) && !is_trivial(name, value) && !is_version {
            return vec![SecretSpan { range: start..word.len(), name: name.trim_start_matches('-').to_owned() }];
        }
    }
    if HEADER_OPTIONS.contains(&before) {
        return in_header(word, 0);
    }
    if USER_OPTIONS.contains(&before) {
        let password = word.split_once(':').filter(|(_, password)| !password.is_empty());
        return password
            .map(|(user, _)| SecretSpan { range: user.len() + 1..word.len(), name: "password".to_owned() })
            .into_iter()
            .collect();
    }
    let is_option = before.starts_with('-') && !before.contains('=') && !word.starts_with('-');
    if is_option && names_secret(before) && !is_trivial(before, word) { vec![whole(before)] } else { Vec::new() }
}

/// Finds the secret value of a header `Name: value`, which begins at the byte `start` of its word.
fn in_header(header: &str, start: usize) -> Vec<SecretSpan> {
    let Some((name, value)) = header.split_once(':') else { return Vec::new() };
    let trimmed = value.trim_start();
    let at = start + header.len() - trimmed.len();
    if trimmed.is_empty() || !is_secret_header(name.trim(), trimmed) {
        return Vec::new();
    }
    vec![SecretSpan { range: at..start + header.len(), name: name.trim().to_owned() }]
}

/// Finds the secrets in one text: in `user:password@`, behind names, and by shape.
pub(super) fn in_text(text: &str) -> Vec<SecretSpan> {
    let mut spans = in_authority(text);
    spans.extend(in_pairs(text));
    spans.extend(by_shape(text));
    for start in SECRET_PATHS {
        for (at, found) in text.match_indices(start) {
            let from = at + found.len();
            let rest = text.get(from..).unwrap_or_default();
            let end =
                rest.find(|c: char| c.is_whitespace() || matches!(c, '?' | '#' | '"' | '\'')).unwrap_or(rest.len());
            let end = rest.get(..end).map_or(end, |path| path.trim_end_matches("/mcp").len());
            spans.extend((end > 0).then(|| SecretSpan { range: from..from + end, name: String::new() }));
        }
    }
    merged(spans)
}

/// Finds passwords, and long user names such as a key, before the `@` of a URL.
fn in_authority(text: &str) -> Vec<SecretSpan> {
    let mut spans = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let rest = text.get(start..).unwrap_or_default();
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'')).unwrap_or(rest.len());
        // A password may contain the characters that end an authority.
        let wide = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(rest.len());
        let user = |end: usize| rest.get(..end).and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
        let is_wide = |user: &&str| {
            let after = user.split_once(':').and_then(|(_, rest)| rest.split('/').next());
            // Excludes the port of `host:80/@scope/package`.
            after.is_some_and(|after| !after.bytes().all(|b| b.is_ascii_digit())) && !user.contains("://")
        };
        let Some(user) = user(end).or_else(|| user(wide).filter(is_wide)) else { continue };
        match user.split_once(':') {
            Some((name, password)) if !password.is_empty() => {
                spans.push(SecretSpan {
                    range: start + name.len() + 1..start + user.len(),
                    name: "password".to_owned(),
                });
            }
            _ if user.len() >= 12 => {
                spans.push(SecretSpan { range: start..start + user.len(), name: "key".to_owned() })
            }
            _ => {}
        }
    }
    spans
}

/// Finds values behind names: `a=b`, `a: b`, `"a": "b"`, `Bearer b`, `--a b`.
fn in_pairs(text: &str) -> Vec<SecretSpan> {
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(c, ';' | '&' | '?' | ',' | '"' | '\'' | '{' | '}' | '(' | ')' | '[' | ']' | '|' | '#' | '`')
    };
    let (mut spans, mut start) = (Vec::new(), 0);
    // The name whose value comes next, and the piece before.
    let (mut awaits, mut before): (Option<String>, &str) = (None, "");
    for piece in text.split(ends) {
        let at = start;
        start += piece.len();
        start += text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        if piece.is_empty() {
            continue;
        }
        if piece == ":" || piece == "=" {
            awaits = names_secret(before).then(|| before.trim_start_matches('-').to_owned()).or(awaits);
            continue;
        }
        let scheme = SCHEMES.contains(&piece.to_ascii_lowercase().as_str());
        if let Some(name) = awaits.take() {
            if scheme {
                awaits = Some(name);
            } else if !is_trivial(&name, piece) {
                spans.push(SecretSpan { range: at..at + piece.len(), name });
            }
        } else if let Some((name, from)) = named(piece) {
            let value = piece.get(from..).unwrap_or_default();
            if value.is_empty() || SCHEMES.contains(&value.to_ascii_lowercase().as_str()) {
                awaits = Some(name.to_owned());
            } else if !is_trivial(name, value) {
                spans.push(SecretSpan { range: at + from..at + piece.len(), name: name.to_owned() });
            }
        } else if piece.eq_ignore_ascii_case("bearer") {
            awaits = Some("token".to_owned());
        } else if piece.starts_with("--") && piece.len() < text.len() && names_secret(piece) {
            awaits = Some(piece.trim_start_matches('-').to_owned());
        }
        before = piece;
    }
    spans
}

/// Names of schemes that precede a secret.
const SCHEMES: &[&str] = &["bearer", "basic", "token", "digest"];

/// Finds the name of a secret in `a=b` or `a:b`, also behind another name as in `--env=A=b`;
/// returns it with the offset of its value.
fn named(piece: &str) -> Option<(&str, usize)> {
    let mut start = 0;
    for (sign, _) in piece.match_indices(['=', ':']) {
        let (name, value) = (piece.get(start..sign)?.trim_start_matches(['-', '$']), piece.get(sign + 1..)?);
        // Excludes `https://`, and the version in `package==1.0`.
        if names_secret(name) && !value.starts_with("//") && !value.starts_with('=') {
            return Some((name, sign + 1));
        }
        start = sign + 1;
    }
    None
}

/// Finds texts that look like a token: a known beginning, a UUID, or a long run of letters and
/// digits.
fn by_shape(text: &str) -> Vec<SecretSpan> {
    let mut spans = Vec::new();
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '=' | '~');
    let end_of = |from: usize, fits: &dyn Fn(char) -> bool| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c: char| !fits(c)).unwrap_or(rest.len())
    };
    let after_word =
        |at: usize| text.get(..at).is_some_and(|before| before.ends_with(|c: char| c.is_ascii_alphanumeric()));
    for (start, weak) in TOKENS.iter().map(|start| (start, false)).chain(WEAK_TOKENS.iter().map(|start| (start, true)))
    {
        for (at, found) in text.match_indices(start).filter(|(at, _)| !after_word(*at)) {
            let end = end_of(at, &|c| is_token(c) || c == '/');
            let rest = text.get(at + found.len()..end).unwrap_or_default();
            // In `api_key=...` the beginning is a name, and its value follows.
            let is_name = rest.trim_end_matches('=').contains('=');
            if weak && is_name {
                continue;
            }
            if rest.len() >= 8 && (!weak || rest.bytes().any(|b| b.is_ascii_digit())) {
                let end = if weak { end_of(at, &is_token) } else { end };
                spans.push(SecretSpan { range: at..end, name: String::new() });
            }
        }
    }
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find(|c: char| c.is_ascii_alphanumeric())) {
        let start = at + start;
        let end = end_of(start, &|c| c.is_ascii_alphanumeric());
        at = end;
        let run = text.get(start..end).unwrap_or_default();
        let before = text.get(..start).unwrap_or_default();
        if is_random(run) && !is_digest(before, run) {
            // The secret includes the parts that hyphens and the like separate from the run.
            let end = end_of(start, &|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '=' | '~'));
            let own =
                before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '~'));
            let lead = before.get(own.len()..).unwrap_or_default();
            let own = own.len() + lead.len() - lead.trim_start_matches('-').len();
            spans.push(SecretSpan { range: own..end, name: String::new() });
            at = end;
        } else if is_uuid(text.get(start..).unwrap_or_default()) {
            spans.push(SecretSpan { range: start..start + UUID, name: String::new() });
            at = start + UUID;
        }
    }
    spans
}

/// Length of a UUID: `8-4-4-4-12` hexadecimal digits.
const UUID: usize = 36;

fn is_uuid(text: &str) -> bool {
    text.get(..UUID).is_some_and(|text| {
        let groups: Vec<&str> = text.split('-').collect();
        groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
            && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

/// Returns true for a run of letters and digits that is unlikely to be a word.
fn is_random(run: &str) -> bool {
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    let upper = run.bytes().filter(u8::is_ascii_uppercase).count();
    let letters = run.len() - digits;
    (run.len() >= 16 && digits > 0 && letters > 0) || (run.len() >= 32 && upper > 2 && letters > upper)
}

/// Returns true for a digest or commit that names the version of a program, and for a path of Nix.
fn is_digest(before: &str, run: &str) -> bool {
    let hex = run.bytes().all(|b| b.is_ascii_hexdigit());
    let marked = before.ends_with("sha256:") || (run.len() == 40 && before.ends_with(['@', '#']));
    (hex && marked) || before.ends_with("/nix/store/")
}

/// Sorts spans and merges those that overlap.
fn merged(mut spans: Vec<SecretSpan>) -> Vec<SecretSpan> {
    spans.sort_by_key(|span| (span.range.start, span.range.end));
    let mut out: Vec<SecretSpan> = Vec::new();
    for span in spans.into_iter().filter(|span| !span.range.is_empty()) {
        match out.last_mut().filter(|last| span.range.start < last.range.end) {
            Some(last) => {
                last.range.end = last.range.end.max(span.range.end);
                if last.name.is_empty() {
                    last.name = span.name;
                }
            }
            None => out.push(span),
        }
    }
    out
}

/// The secrets of all files. Each of them is a secret everywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    /// Adds a secret, unless it is so short or plain that it may also be an ordinary word.
    pub(super) fn learn(&mut self, secret: &str) {
        let secret = secret.trim();
        // A short or plain text, such as the password `postgres`, also occurs where it is no
        // secret.
        let least = if secret.bytes().all(|b| b.is_ascii_lowercase()) { 12 } else { 8 };
        if secret.len() >= least && !self.0.iter().any(|known| known == secret) {
            self.0.push(secret.to_owned());
        }
    }

    /// Sorts the secrets, the longest first. Must be called before the first search.
    pub(super) fn finish(&mut self) {
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Finds the known secrets in a text.
    pub(super) fn spans(&self, text: &str) -> Vec<SecretSpan> {
        let found = self.0.iter().flat_map(|secret| text.match_indices(secret.as_str()));
        merged(found.map(|(at, found)| SecretSpan { range: at..at + found.len(), name: String::new() }).collect())
    }

    /// Adds the known secrets in a text to its spans.
    pub(super) fn and(&self, text: &str, mut spans: Vec<SecretSpan>) -> Vec<SecretSpan> {
        spans.extend(self.spans(text));
        merged(spans)
    }

    /// Replaces each known secret in a text for people by `***`.
    pub(super) fn redacted(&self, text: &str) -> String {
        let (mut out, mut at) = (String::new(), 0);
        for span in self.spans(text) {
            out.push_str(text.get(at..span.range.start).unwrap_or_default());
            out.push_str("***");
            at = span.range.end;
        }
        out + text.get(at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
