//! Names of fields that ask for a secret. The protocol forbids servers to ask for one by a form.
//! Source: MCP 2026-07-28, client/elicitation: "Servers MUST NOT use form mode elicitation to request sensitive information".

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
