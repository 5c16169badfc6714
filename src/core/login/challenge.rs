//! Parses the challenges of `WWW-Authenticate`, in which a server says which token it wants.
//!
//! Source: RFC 9110, 11.6.1; RFC 6750, 3; RFC 9728, 5.1.

/// Most bytes of all header values that are read; the rest is ignored.
const MAX_BYTES: usize = 16 * 1024;
const MAX_CHALLENGES: usize = 16;
const MAX_PARAMS: usize = 32;

/// A challenge with the scheme `Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// Address of the resource's metadata, as it was written.
    pub resource_metadata: Option<String>,
    /// Scopes that a token needs, which no other source may overrule.
    pub scope: Option<String>,
    pub error: Option<TokenComplaint>,
}

/// The reason why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum TokenComplaint {
    /// Expired, revoked, or not for this server.
    InvalidToken,
    /// Other scopes are needed.
    InsufficientScope,
    Other,
}

impl BearerChallenge {
    /// Returns the first challenge of `Bearer` in the values of `WWW-Authenticate`, among any
    /// others.
    pub fn bearer<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let found = parse(values);
        let bearer = found.into_iter().find(|one| one.scheme.eq_ignore_ascii_case("bearer"))?;
        let error = bearer.param("error").map(|code| code.parse().unwrap_or(TokenComplaint::Other));
        Some(Self { resource_metadata: bearer.param("resource_metadata"), scope: bearer.param("scope"), error })
    }
}

/// One challenge of any scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthChallenge {
    pub(super) scheme: String,
    pub(super) params: Vec<(String, String)>,
}

impl AuthChallenge {
    /// Returns a parameter that occurs once. A repeated parameter counts as absent.
    fn param(&self, name: &str) -> Option<String> {
        let mut found = self.params.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let (_, value) = found.next()?;
        found.next().is_none().then(|| value.clone())
    }
}

/// Parses all challenges up to the first malformed place.
pub(super) fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Vec<AuthChallenge> {
    let mut found = Vec::new();
    let mut left = MAX_BYTES;
    for value in values {
        let value = value.get(..left.min(value.len())).unwrap_or_default();
        left -= value.len();
        let first = found.len();
        if (ChallengeParser { text: value, at: 0 }).read(&mut found, first).is_none() || left == 0 {
            break;
        }
    }
    found
}

struct ChallengeParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl ChallengeParser<'_> {
    /// Parses one value and adds its challenges to `found`, where the first one gets the index
    /// `first`. Returns `None` if the value is malformed, or has more than is read.
    fn read(&mut self, found: &mut Vec<AuthChallenge>, first: usize) -> Option<()> {
        loop {
            self.skip(|byte| matches!(byte, b' ' | b'\t' | b','));
            if self.at == self.text.len() {
                return Some(());
            }
            let word = self.token()?;
            let after_word = self.at;
            self.skip(is_blank);
            if self.peek() == Some(b'=') && found.len() > first {
                // The parameter belongs to the challenge before it.
                self.at += 1;
                let value = self.value()?;
                let params = &mut found.last_mut()?.params;
                if params.len() == MAX_PARAMS {
                    return None;
                }
                params.push((word, value));
                self.end()?;
                continue;
            }
            if found.len() == MAX_CHALLENGES {
                return None;
            }
            let has_space = self.at > after_word;
            found.push(AuthChallenge { scheme: word, params: Vec::new() });
            match self.peek() {
                None | Some(b',') => {}
                Some(_) if !has_space => return None,
                Some(_) => self.token68_or_param(found)?,
            }
        }
    }

    /// Reads the text after a scheme: credentials in one piece, which are ignored, or the first
    /// parameter.
    fn token68_or_param(&mut self, found: &mut [AuthChallenge]) -> Option<()> {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
        self.skip(|byte| byte == b'=');
        self.skip(is_blank);
        if matches!(self.peek(), None | Some(b',')) && self.at > start {
            return Some(());
        }
        self.at = start;
        let name = self.token()?;
        self.skip(is_blank);
        if self.peek() != Some(b'=') {
            return None;
        }
        self.at += 1;
        let value = self.value()?;
        found.last_mut()?.params.push((name, value));
        self.end()
    }

    /// Reads a quoted text, or one without quotes up to the next blank or comma: servers forget the
    /// quotes around URLs.
    fn value(&mut self) -> Option<String> {
        self.skip(is_blank);
        if self.peek() != Some(b'"') {
            let start = self.at;
            self.skip(|byte| matches!(byte, b'!'..=b'~') && !matches!(byte, b',' | b'"'));
            return self.text_from(start);
        }
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).ok(),
                b'\\' => {
                    out.push(self.peek().filter(|byte| is_text(*byte))?);
                    self.at += 1;
                }
                byte if is_text(byte) => out.push(byte),
                _ => return None,
            }
        }
    }

    /// Reads a token; `None` if there is none.
    fn token(&mut self) -> Option<String> {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        self.text_from(start)
    }

    fn text_from(&self, start: usize) -> Option<String> {
        let text = self.text.get(start..self.at).filter(|text| !text.is_empty())?;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }

    /// Checks that a parameter ends here, at a comma or with the value.
    fn end(&mut self) -> Option<()> {
        self.skip(is_blank);
        matches!(self.peek(), None | Some(b',')).then_some(())
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skipped) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns whether a byte may be in a quoted text. Source: RFC 9110, 5.6.4.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

#[cfg(test)]
mod tests;
