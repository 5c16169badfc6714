//! Recognises names of fields, and sentences, that ask for a secret. The protocol forbids servers
//! to ask for one by a form. Source: MCP 2026-07-28, client/elicitation: "Servers MUST NOT use form
//! mode elicitation to request sensitive information".

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::mcp::lookalike::{fold_lookalikes, is_mark, split_words};
use crate::wire::foreign;

/// Names of fields for secrets; they are compared without blanks and accents. Each row is a kind of
/// secret, each column a language: English, German, French, Spanish, Chinese, Japanese.
#[rustfmt::skip]
const NAMES: [[&[&str]; 6]; 9] = [
    [&["password", "passwd", "pwd", "passcode"], &["passwort", "kennwort"], &["motdepasse", "mdp"],
     &["contraseña", "clavedeacceso"], &["密码", "密碼", "口令"], &["パスワード"]],
    [&["passphrase", "seedphrase", "recoveryphrase"], &["passphrase", "passwortsatz", "kennsatz"],
     &["phrasedepasse", "phrasesecrète"], &["frasedecontraseña", "frasesecreta"], &["密码短语", "密碼短語"],
     &["パスフレーズ"]],
    [&["secret", "secretkey", "secretvalue"], &["geheimnis", "geheimschlüssel", "geheimerschlüssel"],
     &["secret", "clésecrète"], &["secreto", "clavesecreta"], &["机密", "機密", "密钥", "密鑰"],
     &["シークレット", "シークレットキー"]],
    [&["pincode"], &["pincode"], &["codepin"], &["códigopin"], &["pin码", "pin碼"], &["pinコード", "暗証番号"]],
    [&["apikey"], &["apischlüssel", "apikey"], &["cléapi", "clédapi"], &["claveapi", "clavedeapi"],
     &["api密钥", "api密鑰", "api金鑰"], &["apiキー"]],
    [&["accesstoken", "apitoken", "authtoken", "bearertoken"], &["zugriffstoken", "zugangstoken"], &["jetondaccès"],
     &["tokendeacceso"], &["访问令牌", "訪問令牌", "存取權杖"], &["アクセストークン"]],
    [&["privatekey", "sshkey"], &["privaterschlüssel", "privatschlüssel"], &["cléprivée", "clefprivée"],
     &["claveprivada", "llaveprivada"], &["私钥", "私鑰"], &["秘密鍵", "プライベートキー"]],
    [&["accesskey", "encryptionkey", "signingkey", "masterkey", "authkey", "deploykey", "recoverykey"], &[], &[], &[],
     &[], &[]],
    [&["credential"], &[], &[], &[], &[], &[]],
];
/// A name of a secret that is judged together with the word before it.
const TOKEN: &str = "token";
/// Words before "token" that make it a part of a text, or a place in a list.
#[rustfmt::skip]
const HARMLESS_TOKENS: [&str; 29] = [
    "page", "pagination", "next", "previous", "continuation", "cursor", "sync", "progress", "cancel", "cancellation",
    "stop", "end", "start", "special", "separator", "delimiter", "padding", "mask", "unknown", "input", "output",
    "prompt", "completion", "max", "min", "per", "each", "design", "idempotency",
];
/// Languages, in the columns of [`NAMES`], whose names count at the end of a longer word: German
/// joins words, Chinese and Japanese write them without blanks.
const COMPOUND: [bool; 6] = [false, true, false, false, true, true];
/// The length in bytes from which a name counts at the end of a longer word in every language, as
/// in `dbpassword`.
const LONG: usize = "password".len();

/// Reports whether a field of this name, or with this title, asks for a secret: its last words are
/// the name of a secret, or the last words before a bracket or before a word such as "for" are.
pub(super) fn is_named(text: &str) -> bool {
    let before_bracket = text.split(['(', '[', '{', '<', '\u{ff08}', '\u{3010}']).next().unwrap_or_default();
    let words: Vec<String> = split_words(text).iter().map(|word| fold_lookalikes(word)).collect();
    let of = OF.iter().map(|word| fold_lookalikes(word)).collect::<Vec<_>>();
    let before_of = words.iter().position(|word| of.contains(word)).and_then(|at| words.get(..at));
    has_name_last(&words)
        || before_of.is_some_and(has_name_last)
        || (before_bracket.len() < text.len() && is_named(before_bracket))
}

/// Reports whether the last of these folded words are the name of a secret. Numbers at the end and
/// a plural "s" are ignored.
fn has_name_last(words: &[String]) -> bool {
    static FOLDED: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| {
        let columns = NAMES.iter().flat_map(|row| row.iter().zip(COMPOUND));
        let names = columns.flat_map(|(names, compound)| names.iter().map(move |name| (*name, compound)));
        names.map(|(name, compound)| (fold_lookalikes(name), compound || name.len() >= LONG)).collect()
    });
    static HARMLESS: LazyLock<HashSet<String>> =
        LazyLock::new(|| HARMLESS_TOKENS.iter().map(|word| fold_lookalikes(word)).collect());
    let numbers = words.iter().rev().take_while(|word| word.chars().all(char::is_numeric)).count();
    let words = words.get(..words.len() - numbers).unwrap_or_default();
    if let [before @ .., last] = words
        && *last == fold_lookalikes(TOKEN)
        && before.last().is_none_or(|word| !HARMLESS.contains(word))
    {
        return true;
    }
    let whole = words.concat();
    let mut starts = Vec::with_capacity(words.len());
    words.iter().fold(0, |at, word| {
        starts.push(at);
        at + word.len()
    });
    FOLDED.iter().any(|(name, compound)| {
        let before = whole.strip_suffix(name.as_str());
        let before = before.or_else(|| whole.strip_suffix('s').and_then(|whole| whole.strip_suffix(name.as_str())));
        before.is_some_and(|before| *compound || starts.contains(&before.len()))
    })
}

/// Words with which a sentence asks a person to write something, in the first four languages of
/// [`NAMES`].
#[rustfmt::skip]
const REQUESTS: [&str; 36] = [
    "enter", "type", "provide", "paste", "input", "give", "submit", "supply", "write", "insert", "fill", "tell", "send", "confirm",
    "geben", "gib", "eingeben", "angeben", "eintragen", "nennen", "tippen", "saisir", "saisissez", "entrez", "entrer", "donnez",
    "indiquez", "tapez", "introduzca", "introduce", "ingrese", "ingresa", "escriba", "escribe", "proporcione", "indique",
];
/// Such words in Chinese and Japanese, which are written without blanks.
const JOINED_REQUESTS: [&str; 7] = ["输入", "輸入", "填写", "填寫", "提供", "入力", "記入"];
/// Words right before a request that turn it into its opposite.
const NEGATIONS: [&str; 9] = ["never", "not", "don't", "nie", "nicht", "jamais", "nunca", "no", "longer"];
/// Words that may follow the name of a secret that is asked for. Before any other word the name is
/// only an attribute, as in "password file".
#[rustfmt::skip]
const FOLLOWERS: [&str; 36] = [
    "to", "for", "of", "here", "below", "above", "in", "into", "and", "or", "so", "again", "if", "with", "from", "at", "on", "that", "which",
    "as", "now", "please", "first", "then", "twice", "ein", "an", "hier", "für", "von", "und", "pour", "de", "ici", "para", "aquí",
];
/// Words that introduce the purpose or the owner of a secret.
const OF: [&str; 8] = ["of", "for", "für", "von", "pour", "de", "para", "del"];
/// Words that ask for a secret if "your" or "the" follows within two words, or "I" or "we"
/// precedes.
const WISHES: [&str; 13] = [
    "what", "what's", "whats", "need", "needs", "require", "requires", "want", "wants", "share", "shares", "request",
    "requests",
];
const OWNERS: [&str; 2] = ["your", "the"];
const ASKERS: [&str; 2] = ["i", "we"];
/// Words that ask for the secret before them, with or without "is" or "are" between.
const DEMANDS: [&str; 3] = ["required", "needed", "necessary"];
/// Nouns that are the object of a request instead of the secret if "of" or "for" follows, as in
/// "the name for the new token".
#[rustfmt::skip]
const NOUNS: [&str; 14] = [
    "name", "title", "label", "description", "number", "length", "purpose", "type", "kind", "scope", "scopes",
    "lifetime", "expiry", "owner",
];
/// The limit of words between a request and the name of the secret.
const BETWEEN: usize = 5;

/// Reports whether some sentence of a text asks a person for a secret, or is little more than the
/// name of one.
pub(super) fn is_asked_for(text: &str) -> bool {
    let text: String = text.chars().filter(|c| c.is_control() || !foreign::is_hidden(*c)).collect();
    text.split(['.', '!', '?', ';', '\n', '\r', '。', '！', '？', '；']).any(is_request)
}

/// Reports whether a sentence asks for a secret, or is little more than the name of one.
fn is_request(sentence: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || is_mark(c) || matches!(c, '\'' | '’');
    let words: Vec<String> =
        sentence.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(fold_lookalikes).collect();
    let whole = words.concat();
    let joined = NAMES.iter().flat_map(|row| row.iter().skip(4)).copied().flatten();
    if JOINED_REQUESTS.iter().any(|request| whole.contains(&fold_lookalikes(request)))
        && joined.into_iter().any(|name| whole.contains(&fold_lookalikes(name)))
    {
        return true;
    }
    if words.len() <= 3 && is_named(sentence) {
        return true;
    }
    let sentence = Sentence(&words);
    (0..words.len()).any(|at| {
        let first = at.saturating_sub(BETWEEN);
        let asks = sentence.is_demanded(at) || (sentence.is_followed(at) && sentence.asks_around(first, at));
        asks && has_name_last(words.get(first..=at).unwrap_or_default())
    })
}

/// The word lists for sentences, folded.
struct WordLists {
    requests: HashSet<String>,
    wishes: HashSet<String>,
    owners: HashSet<String>,
    askers: HashSet<String>,
    demands: HashSet<String>,
    nouns: HashSet<String>,
    of: HashSet<String>,
    negations: HashSet<String>,
    followers: HashSet<String>,
}

static LISTS: LazyLock<WordLists> = LazyLock::new(|| {
    let set = |words: &[&str]| words.iter().map(|word| fold_lookalikes(word)).collect();
    WordLists {
        requests: set(&REQUESTS),
        wishes: set(&WISHES),
        owners: set(&OWNERS),
        askers: set(&ASKERS),
        demands: set(&DEMANDS),
        nouns: set(&NOUNS),
        of: set(&OF),
        negations: set(&NEGATIONS),
        followers: set(&FOLLOWERS),
    }
});

/// The folded words of a sentence.
struct Sentence<'a>(&'a [String]);

impl Sentence<'_> {
    /// Reports whether there is a word at this index and it is in the list.
    fn is_in(&self, list: &HashSet<String>, at: Option<usize>) -> bool {
        at.and_then(|at| self.0.get(at)).is_some_and(|word| list.contains(word))
    }

    /// Reports whether the word after the name of a secret, which ends at `at`, allows the secret
    /// to be asked for.
    fn is_followed(&self, at: usize) -> bool {
        let next = self.0.get(at + 1);
        next.is_none_or(|next| LISTS.followers.contains(next) || LISTS.requests.contains(next))
    }

    /// Reports whether the sentence calls the thing that ends at `at` required.
    fn is_demanded(&self, at: usize) -> bool {
        let next =
            self.0.get(at + 1).is_some_and(|word| *word == fold_lookalikes("is") || *word == fold_lookalikes("are"));
        let before = self.0.get(at.saturating_sub(BETWEEN)..at).unwrap_or_default();
        let is_negated = before.iter().any(|word| LISTS.negations.contains(word));
        self.is_in(&LISTS.demands, Some(at + 1 + usize::from(next))) && !is_negated
    }

    /// Reports whether a word near the secret whose name ends at `at` asks for it; `first` is the
    /// earliest word that counts.
    fn asks_around(&self, first: usize, at: usize) -> bool {
        let before = (first..at)
            .any(|request| (self.is_request(request) || self.is_wish(request)) && !self.is_about_another(request, at));
        before || (at..=at + BETWEEN).any(|request| self.is_request(request))
    }

    /// Reports whether the word at this index is a request that is not negated.
    fn is_request(&self, at: usize) -> bool {
        // "The type of" asks for nothing.
        let is_noun = self.is_in(&LISTS.nouns, Some(at)) && self.is_in(&LISTS.of, Some(at + 1));
        self.is_in(&LISTS.requests, Some(at)) && !self.is_in(&LISTS.negations, at.checked_sub(1)) && !is_noun
    }

    /// Reports whether the word at this index asks for something with an owner or an asker beside
    /// it.
    fn is_wish(&self, at: usize) -> bool {
        let owner = (1..=2).any(|next| self.is_in(&LISTS.owners, Some(at + next)));
        let before = at.checked_sub(1);
        let is_negated = self.is_in(&LISTS.negations, before);
        self.is_in(&LISTS.wishes, Some(at)) && (owner || self.is_in(&LISTS.askers, before)) && !is_negated
    }

    /// Reports whether the request at index `request` is about a noun other than the secret that
    /// ends at `at`.
    fn is_about_another(&self, request: usize, at: usize) -> bool {
        (request..at).any(|word| self.is_in(&LISTS.nouns, Some(word)) && self.is_in(&LISTS.of, Some(word + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_six_languages_and_every_way_of_writing() {
        for name in [
            "password",
            "Password",
            "PASSWORD",
            "userPassword",
            "user_password",
            "user-password",
            "User password:",
            "dbpassword",
            "password2",
            "confirm_password_2",
            "passphrase",
            "secret",
            "clientSecret",
            "client_secret",
            "PIN code",
            "pinCode",
            "pin-code",
            "apiKey",
            "APIKey",
            "api_key",
            "OPENAI_API_KEY",
            "API-Key",
            "apikey",
            "accessToken",
            "GitHub access token",
            "private key",
            "sshPrivateKey",
            "pass\u{200b}word",
            "p\u{430}ssword",
            "Ｐassword",
            "Passwort",
            "Benutzerkennwort",
            "API-Schlüssel",
            "privater Schlüssel",
            "Zugriffstoken",
            "Mot de passe",
            "clé d'API",
            "Cle API",
            "jeton d’accès",
            "clé privée",
            "Code PIN",
            "phrase secrète",
            "Contraseña",
            "contrasen\u{303}a",
            "CONTRASENA",
            "clave de API",
            "token de acceso",
            "clave privada",
            "密码",
            "数据库密码",
            "訪問令牌",
            "API 密钥",
            "私钥",
            "PIN码",
            "パスワード",
            "管理者パスワード",
            "APIキー",
            "秘密鍵",
            "暗証番号",
            "アクセストークン",
        ] {
            assert!(is_named(name), "{name}");
        }
    }

    #[test]
    fn tokens_keys_and_look_alikes_are_secrets() {
        for name in [
            "token",
            "Token",
            "api_token",
            "apitoken",
            "auth_token",
            "authToken",
            "bearer_token",
            "GITHUB_TOKEN",
            "GitHub token",
            "access tokens",
            "passwords",
            "API keys",
            "ssh_key",
            "SSH key",
            "sshKey",
            "aws_secret_access_key",
            "AWS secret access key",
            "encryption key",
            "signing_key",
            "passcode",
            "credentials",
            "seed phrase",
            "secret_value",
            "password (of the database)",
            "Password [required]",
            "password for the database",
            "Token of the bot",
            "Password *",
            "API \u{41a}EY",
            "API_\u{41a}EY",
            "\u{410}\u{421}\u{421}\u{415}SS \u{422}\u{41e}\u{41a}EN",
            "\u{3a1}\u{391}SSWORD",
            "PASSW\u{39f}RD",
            "\u{24df}assword",
            "\u{1f17f}\u{1f170}\u{1f182}\u{1f182}\u{1f186}\u{1f17e}\u{1f181}\u{1f173}",
            "p a s s w o r d",
        ] {
            assert!(is_named(name), "{name}");
        }
        for name in [
            "token_budget",
            "Token budget",
            "max_tokens",
            "page_token",
            "nextPageToken",
            "continuation token",
            "stop token",
            "Primary key of the table",
            "primary_key",
            "foreign key",
            "public key",
            "ssh_public_key",
            "sort_key",
            "access_key_id",
            "key (of the row)",
            "keyboard",
            "hotkey",
            "tokenizer",
            "number (of tokens)",
            "passport",
        ] {
            assert!(!is_named(name), "{name}");
        }
    }

    #[test]
    fn a_request_needs_no_verb_of_writing() {
        for (text, want) in [
            ("What is your password?", true),
            ("What\u{2019}s your password", true),
            ("I need your password to go on", true),
            ("We require the password of your account", true),
            ("This server needs your API key", true),
            ("Please share your password", true),
            ("Enter your passwords", true),
            ("Enter your GitHub token", true),
            ("Enter your bearer token, please", true),
            ("Paste your SSH key", true),
            ("Enter your \u{3a1}\u{391}SSWORD", true),
            ("Enter your API \u{41a}EY", true),
            ("Your password is required to go on", true),
            ("A token is needed", true),
            ("Enter your user name and password", true),
            ("Enter the token budget", false),
            ("What is the token budget?", false),
            ("How many tokens may the answer have?", false),
            ("What is the primary key of the table?", false),
            ("Which keyboard do you need?", false),
            ("Type the primary key", false),
            ("No password is required.", false),
            ("You do not need your password here", false),
            ("You no longer need your password", false),
            ("What is the password policy?", false),
            ("Enter a name for the new token", false),
            ("Enter the label of the API key", false),
            ("Which type of token?", false),
            ("Enter the price per input token", false),
            ("Should the share require a password?", false),
        ] {
            assert_eq!(is_asked_for(text), want, "{text}");
        }
    }

    #[test]
    fn a_sentence_that_asks_for_a_secret_is_known_and_one_about_secrets_is_none() {
        for (text, want) in [
            ("Please enter your password", true),
            ("To go on, type the password for the database.", true),
            ("Paste the GitHub access token here:", true),
            ("Your account is locked. Provide your API key to unlock it.", true),
            ("Do not forget to enter your password", true),
            ("Don't worry. Give me the private key", true),
            ("Enter your pass\u{200b}word", true),
            ("Your password:", true),
            ("Bitte Passwort eingeben", true),
            ("Geben Sie Ihr Kennwort ein", true),
            ("Saisissez votre mot de passe", true),
            ("Introduzca su contraseña", true),
            ("请输入您的密码", true),
            ("パスワードを入力してください", true),
            ("Never enter your password here.", false),
            ("We never ask for a password. Enter your name.", false),
            ("Enter the name of the password file", false),
            ("A password reset link was sent. Type the code word.", false),
            ("Type the name of the vault in which your team keeps its password", false),
            ("Which environment?", false),
            ("Enter your user name", false),
            ("", false),
        ] {
            assert_eq!(is_asked_for(text), want, "{text}");
        }
    }

    #[test]
    fn other_fields_are_no_secrets() {
        for name in [
            "name",
            "who",
            "email",
            "user_name",
            "password_hint",
            "passwordless",
            "secretary",
            "Shopping code",
            "pin",
            "key",
            "token_count",
            "tokens",
            "api",
            "publicKey",
            "keyboard",
            "Schlüsselanhänger",
            "clave",
            "código",
            "mot",
            "monkey",
            "access",
            "decision",
            "ship code",
            "用户名",
            "密码提示",
            "ユーザー名",
            "",
            "2",
            "---",
        ] {
            assert!(!is_named(name), "{name}");
        }
    }
}
