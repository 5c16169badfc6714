//! Tests of the keys of `[server.auth]` about JWTs.

use super::problems::refused;
use super::*;

const CORP: &str = "[[server.auth.issuers]]\nname = \"corp\"\nissuer = \"https://login.example.com\"\n";
const JWT: &str = "[server.auth]\nmode = [\"token\", \"jwt\"]\npublic-url = \"https://mcp.example.com/\"\n";

#[test]
fn the_keys_about_jwts_are_checked() {
    let rows: Vec<(&str, String, &str)> = [
        ("no issuer", JWT.to_owned(), "server.auth: mode \"jwt\" needs an issuer"),
        ("no address", format!("[server.auth]\nmode=\"jwt\"\n{CORP}"), "write `public-url = "),
        ("no mode", CORP.to_owned(), "server.auth: `public-url` and `issuers` belong to mode \"jwt\""),
        ("no modes", "[server.auth]\nmode=[]\n".to_owned(), "server.auth.mode: must name at least one mode"),
        ("none too", "[server.auth]\nmode=[\"none\",\"token\"]\n".to_owned(), "\"none\" lets every client in"),
        (
            "tokens",
            "[server.auth]\nmode=[\"jwt\"]\ntokens={a=\"0123456789abcdef\"}\n".to_owned(),
            "tokens are not looked at in mode \"jwt\"",
        ),
        ("plain", format!("{JWT}{}", CORP.replace("https", "http")), "issuers[0].issuer: must be an https:// URL"),
        ("a query", format!("{JWT}{}", CORP.replace(".com", ".com?a")), "issuers[0].issuer: must be an https:// URL"),
        ("the address", JWT.replace("https", "http"), "server.auth.public-url: must be an https:// URL"),
        ("a name", format!("{JWT}{}", CORP.replace("corp", "a:b")), "issuers[0].name: an issuer's name must be"),
        (
            "reserved",
            format!("{JWT}{}", CORP.replace("corp", "uid")),
            "issuers[0].name: `uid` is a word for other callers",
        ),
        ("twice", format!("{JWT}{CORP}{CORP}"), "issuers[1]: has the name or the `issuer` of `corp` too"),
        ("no name", format!("{JWT}[[server.auth.issuers]]\nissuer=\"https://a\"\n"), "issuers[0]: needs a `name`"),
        ("no iss", format!("{JWT}[[server.auth.issuers]]\nname=\"a\"\n"), "issuers[0]: needs `issuer`"),
        ("a secret", format!("{JWT}{CORP}algorithms=[\"HS256\"]\n"), "algorithms[0]: proves nothing here"),
        ("a word", format!("{JWT}{CORP}algorithms=[\"RS257\"]\n"), "did you mean `RS256`?"),
        ("no types", format!("{JWT}{CORP}types=[]\n"), "issuers[0].types: must not be empty"),
        ("keys", format!("{JWT}{CORP}jwks=\"http://a/b\"\n"), "issuers[0].jwks: must be the https:// URL"),
        ("a key", format!("{JWT}{CORP}jwk=\"http://a/b\"\n"), "issuers[0].jwk: unknown key; did you mean `jwks`?"),
        ("an audience", "[profiles.p]\naudiences=[\"x\"]\n".to_owned(), "profiles.p: no issuer has the audience \"x\""),
    ]
    .into();
    refused(&rows, "");
}

#[test]
fn issuers_have_defaults_and_are_shown() {
    let full = format!("{JWT}{CORP}audiences=[\"api://x\"]\ntypes=[\"application/at+jwt\"]\nsubject-claim=\"email\"\n");
    let (config, warnings) = parse(&full, "t", &every, &paths).unwrap();
    let jwt = config.server.jwt.as_ref().unwrap();
    assert_eq!((&*jwt.public_url, jwt.with_tokens, jwt.issuers.len()), ("https://mcp.example.com", true, 1));
    assert_eq!(jwt.issuers[0].terms.types, ["at+jwt"]);
    assert!(config.has_many_callers());
    assert!(warnings.iter().any(|warning| warning.to_string().contains("pass to another person")));
    let shown = show::render(&config);
    for part in [
        "mode = [\"token\", \"jwt\"]",
        "public-url = \"https://mcp.example.com\"",
        "[[server.auth.issuers]]",
        "groups-claim = \"groups\"",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let (again, _) = parse(&shown, "t", &every, &paths).unwrap();
    assert_eq!(again.server.jwt, config.server.jwt);
}

#[test]
fn a_removed_issuer_ends_its_callers_and_a_new_one_opens() {
    let (with, _) = parse(&format!("{JWT}{CORP}"), "t", &every, &paths).unwrap();
    let (without, _) = parse("", "t", &every, &paths).unwrap();
    assert_eq!(plan::diff(&with, &without).end, ["the callers of corp"]);
    assert!(plan::diff(&without, &with).opens.contains(&"the callers of corp".to_owned()));
}
