//! Names of fields, and sentences, that ask for a secret. The protocol forbids servers to ask for one by a form.
//! Source: MCP 2026-07-28, client/elicitation: "Servers MUST NOT use form mode elicitation to request sensitive information".

use std::collections::HashSet;
use std::sync::LazyLock;

use unicode_security::skeleton;

use crate::wire::foreign;

/// What fields for secrets are called, without blanks and accents mattering: each row is a kind of secret, each column a
/// language: English, German, French, Spanish, Chinese, Japanese.
#[rustfmt::skip]
const NAMES: [[&[&str]; 6]; 7] = [
    [&["password", "passwd", "pwd"], &["passwort", "kennwort"], &["motdepasse", "mdp"],
     &["contraseña", "clavedeacceso"], &["密码", "密碼", "口令"], &["パスワード"]],
    [&["passphrase"], &["passphrase", "passwortsatz", "kennsatz"], &["phrasedepasse", "phrasesecrète"],
     &["frasedecontraseña", "frasesecreta"], &["密码短语", "密碼短語"], &["パスフレーズ"]],
    [&["secret", "secretkey"], &["geheimnis", "geheimschlüssel", "geheimerschlüssel"], &["secret", "clésecrète"],
     &["secreto", "clavesecreta"], &["机密", "機密", "密钥", "密鑰"], &["シークレット", "シークレットキー"]],
    [&["pincode"], &["pincode"], &["codepin"], &["códigopin"], &["pin码", "pin碼"], &["pinコード", "暗証番号"]],
    [&["apikey"], &["apischlüssel", "apikey"], &["cléapi", "clédapi"], &["claveapi", "clavedeapi"],
     &["api密钥", "api密鑰", "api金鑰"], &["apiキー"]],
    [&["accesstoken"], &["zugriffstoken", "zugangstoken"], &["jetondaccès"], &["tokendeacceso"],
     &["访问令牌", "訪問令牌", "存取權杖"], &["アクセストークン"]],
    [&["privatekey"], &["privaterschlüssel", "privatschlüssel"], &["cléprivée", "clefprivée"], &["claveprivada", "llaveprivada"],
     &["私钥", "私鑰"], &["秘密鍵", "プライベートキー"]],
];
/// Languages whose names may stand at the end of a longer word: German joins words, Chinese and Japanese do not part them.
const COMPOUND: [bool; 6] = [false, true, false, false, true, true];
/// Names of so many letters count at the end of a word in every language, as in `dbpassword`.
const LONG: usize = "password".len();

/// Whether a field of this name, or under this title, asks for a secret: its last words are one of the names above.
pub(super) fn is_named(text: &str) -> bool {
    static FOLDED: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| {
        let columns = NAMES.iter().flat_map(|row| row.iter().zip(COMPOUND));
        let names = columns.flat_map(|(names, compound)| names.iter().map(move |name| (*name, compound)));
        names.map(|(name, compound)| (folded(name), compound || name.len() >= LONG)).collect()
    });
    let words: Vec<String> = words(text).iter().map(|word| folded(word)).collect();
    let whole = words.concat();
    let mut starts = Vec::with_capacity(words.len());
    words.iter().fold(0, |at, word| {
        starts.push(at);
        at + word.len()
    });
    FOLDED.iter().any(|(name, compound)| {
        let Some(before) = whole.strip_suffix(name.as_str()) else { return false };
        *compound || starts.contains(&before.len())
    })
}

/// Words by which a sentence asks a person to write something, in the first four languages of [`NAMES`].
#[rustfmt::skip]
const REQUESTS: [&str; 36] = [
    "enter", "type", "provide", "paste", "input", "give", "submit", "supply", "write", "insert", "fill", "tell", "send", "confirm",
    "geben", "gib", "eingeben", "angeben", "eintragen", "nennen", "tippen", "saisir", "saisissez", "entrez", "entrer", "donnez",
    "indiquez", "tapez", "introduzca", "introduce", "ingrese", "ingresa", "escriba", "escribe", "proporcione", "indique",
];
/// The same in Chinese and Japanese, which do not part words.
const JOINED_REQUESTS: [&str; 7] = ["输入", "輸入", "填写", "填寫", "提供", "入力", "記入"];
/// Words that turn a request around where they stand right before it.
const NEGATIONS: [&str; 8] = ["never", "not", "don't", "nie", "nicht", "jamais", "nunca", "no"];
/// Words that may follow the name of a secret that is asked for. Before any other word the name describes it, as in
/// "password file".
#[rustfmt::skip]
const FOLLOWERS: [&str; 36] = [
    "to", "for", "of", "here", "below", "above", "in", "into", "and", "or", "so", "again", "if", "with", "from", "at", "on", "that", "which",
    "as", "now", "please", "first", "then", "twice", "ein", "an", "hier", "für", "von", "und", "pour", "de", "ici", "para", "aquí",
];
/// Words between a request and the name of what is asked for, at most.
const BETWEEN: usize = 5;

/// Whether some sentence of a text asks a person for a secret, or is the name of one and little more.
pub(super) fn is_asked_for(text: &str) -> bool {
    let text: String = text.chars().filter(|c| c.is_control() || !foreign::is_hidden(*c)).collect();
    text.split(['.', '!', '?', ';', '\n', '\r', '。', '！', '？', '；']).any(is_request)
}

fn is_request(sentence: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || is_mark(c) || matches!(c, '\'' | '’');
    let words: Vec<String> = sentence.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(folded).collect();
    let whole = words.concat();
    let joined = NAMES.iter().flat_map(|row| row.iter().skip(4)).copied().flatten();
    if JOINED_REQUESTS.iter().any(|request| whole.contains(&folded(request)))
        && joined.into_iter().any(|name| whole.contains(&folded(name)))
    {
        return true;
    }
    if words.len() <= 3 && is_named(sentence) {
        return true;
    }
    static FOLDED: LazyLock<[HashSet<String>; 3]> = LazyLock::new(|| {
        [&REQUESTS[..], &NEGATIONS, &FOLLOWERS].map(|words| words.iter().map(|word| folded(word)).collect())
    });
    let [requests, negations, followers] = &*FOLDED;
    let is_requested = |at: usize| {
        let is_negated = at.checked_sub(1).and_then(|at| words.get(at)).is_some_and(|word| negations.contains(word));
        words.get(at).is_some_and(|word| requests.contains(word)) && !is_negated
    };
    let is_followed =
        |at: usize| words.get(at + 1).is_none_or(|next| followers.contains(next) || requests.contains(next));
    (0..words.len()).any(|at| {
        let first = at.saturating_sub(BETWEEN);
        let phrase = || words.get(first..=at).unwrap_or_default().join(" ");
        is_followed(at) && (first..=at + BETWEEN).any(is_requested) && is_named(&phrase())
    })
}

/// The words of a name: parted by what is no letter, by a change of case as in `apiKey` and `APIKey`, and without numbers at
/// the end as in `password2`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    let letters: Vec<char> = text.chars().filter(|c| !foreign::is_hidden(*c)).collect();
    for (at, c) in letters.iter().copied().enumerate() {
        let next_is_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = !c.is_alphanumeric()
            || (c.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower)))
            || (c.is_numeric() != before.is_numeric());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric() || is_mark(c)) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    while words.last().is_some_and(|word| word.chars().all(char::is_numeric)) {
        words.pop();
    }
    words
}

/// Accents that stand alone.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}')
}

/// Look-alikes as what they look like, without accents, in lower case.
fn folded(text: &str) -> String {
    skeleton(&text.to_lowercase()).filter(|c| !is_mark(*c)).flat_map(char::to_lowercase).collect()
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
