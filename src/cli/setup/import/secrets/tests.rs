use super::*;

/// Replaces each secret in the words by `*`.
fn hidden(words: &[&str]) -> Vec<String> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let all = in_words(&words);
    let hide = |(word, spans): (&String, &Vec<SecretSpan>)| {
        let mut out = word.clone();
        for span in spans.iter().rev() {
            out.replace_range(span.range.clone(), "*");
        }
        out
    };
    words.iter().zip(&all).map(hide).collect()
}

#[test]
fn secrets_on_a_command_line_are_found() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--token=hunter2"], &["--token=*"]),
        (&["--api-key", "hunter2", "x"], &["--api-key", "*", "x"]),
        (&["--apiKey", "hunter2"], &["--apiKey", "*"]),
        (&["--pat", "hunter2"], &["--pat", "*"]),
        (&["API_KEY=hunter2"], &["API_KEY=*"]),
        (&["-e", "GITHUB_TOKEN=hunter2"], &["-e", "GITHUB_TOKEN=*"]),
        (&["--env=DB_PASS=hunter2"], &["--env=DB_PASS=*"]),
        (&["--header", "Authorization: Bearer hunter2"], &["--header", "Authorization: *"]),
        (&["--header", "X-Api-Key:hunter2"], &["--header", "X-Api-Key:*"]),
        (&["--header=X-Custom: hunter2"], &["--header=X-Custom: *"]),
        (&["-H", "Accept: text/html"], &["-H", "Accept: text/html"]),
        (&["-u", "me:hunter2"], &["-u", "me:*"]),
        (&["postgresql://me:hunter2@db:5432/x"], &["postgresql://me:*@db:5432/x"]),
        (&["postgresql://me:hun/ter#2@db:5432/x"], &["postgresql://me:*@db:5432/x"]),
        (&["redis://:hunter2@db"], &["redis://:*@db"]),
        (&["postgresql://me@db:5432/x"], &["postgresql://me@db:5432/x"]),
        (&["https://0123456789ab@sentry.example.com/1"], &["https://*@sentry.example.com/1"]),
        (&["Server=db;User Id=sa;Password=hunter2;Encrypt=yes"], &["Server=db;User Id=sa;Password=*;Encrypt=yes"]),
        (&["host=db user=me password=hunter2"], &["host=db user=me password=*"]),
        (&["https://x.example.com/mcp?apiKey=hunter2&profile=a"], &["https://x.example.com/mcp?apiKey=*&profile=a"]),
        (
            &["https://x.example.com/mcp?api_key=ab12cd34ef56&profile=p"],
            &["https://x.example.com/mcp?api_key=*&profile=p"],
        ),
        (&["api_key=0123456789abcdef0123", "key-0123456789=="], &["api_key=*", "*"]),
        (&["https://x.example.com/s/AbCdEf0123456789xyz/mcp"], &["https://x.example.com/s/*/mcp"]),
        (&["https://hooks.slack.com/services/T0/B0/abc"], &["https://hooks.slack.com/services/*"]),
        (
            &["{\"Authorization\": \"Bearer hunter2\", \"A\": \"b\"}"],
            &["{\"Authorization\": \"Bearer *\", \"A\": \"b\"}"],
        ),
        (
            &["-c", "export API_TOKEN=hunter2; exec srv --password hunter2 x"],
            &["-c", "export API_TOKEN=*; exec srv --password * x"],
        ),
        (&["ghp_abcdefghijklmnop"], &["*"]),
        (&["sk-ant-api03-abc_def"], &["*"]),
        (&["AbCdEfGh12345678-xyz_1"], &["*"]),
        (&["123e4567-e89b-12d3-a456-426614174000"], &["*"]),
    ];
    for (words, wanted) in cases {
        assert_eq!(hidden(words), *wanted, "{words:?}");
    }
}

#[test]
fn ordinary_words_stay() {
    for words in [
        &["npx", "-y", "@modelcontextprotocol/server-filesystem@2025.8.21", "/home/alice/Documents"][..],
        &["uvx", "mcp-server-git==2025.9.25", "--repository", "/srv/project"],
        &["docker", "run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
        &["--token-file=/run/t", "--max-tokens", "4096", "--auth", "oauth", "--port=8080", "-p", "3000"],
        &["--token", "--verbose"],
        &["https://mcp.example.com/mcp?profile=a", "git@github.com:me/task-runner.git", "host.docker.internal:5432"],
        &["ghcr.io/x/y@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],
        &["git+https://github.com/x/y@0123456789abcdef0123456789abcdef01234567"],
        &["/nix/store/0c1v9m8k7j6h5g4f3d2s1a0q9w8e7r6t-mcp-server/bin/mcp-server", "--log-level=info"],
    ] {
        assert_eq!(hidden(words), words, "{words:?}");
    }
}

#[test]
fn variables_and_headers_are_judged_by_name_and_value() {
    for (name, value) in [
        ("GITHUB_PAT", "hunter2"),
        ("PGPASSWORD", "postgres"),
        ("DB_PASS", "hunter2"),
        ("dbPassword", "hunter2"),
        ("SENTRY_DSN", "https://a@b/1"),
        ("DATABASE_URL", "postgres://me:hunter2@db/x"),
        ("OPENAPI_MCP_HEADERS", "{\"Authorization\":\"Bearer hunter2\"}"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("CONNECTION_STRING", "hunter2"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example.com/hunter2"),
        ("ANYTHING", "AbCdEfGh12345678"),
    ] {
        assert!(is_secret(name, value), "{name}");
    }
    for (name, value) in [
        ("NODE_ENV", "production"),
        ("MAX_TOKENS", "4096"),
        ("AUTH_ENABLED", "true"),
        ("TOKEN_FILE", "/run/token"),
        ("GITHUB_TOOLSETS", "repos,issues"),
        ("PATH", "/usr/bin:/bin"),
        ("MEMORY_FILE_PATH", "/home/me/memory.jsonl"),
    ] {
        assert!(!is_secret(name, value), "{name}");
    }
    assert!(is_secret_header("X-Custom", "hunter2") && is_secret_header("Authorization", "Bearer a"));
    assert!(is_secret_header("X-Custom", "word"), "a short word too");
    assert!(!is_secret_header("X-Region", "eu") && !is_secret_header("Accept", "application/json, text/event-stream"));
}

#[test]
fn a_secret_is_one_wherever_it_stands() {
    let mut known = KnownSecrets::default();
    for secret in ["hunter2-hunter2", "postgres", "short"] {
        known.learn(secret);
    }
    known.finish();
    assert_eq!(known.redacted("a hunter2-hunter2 b postgres short"), "a *** b postgres short");
}
