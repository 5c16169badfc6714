//! Signs in a server's output or errors that lead to a next step.

/// Texts of which one is enough, and the next step. `NAME` stands for the upstream.
const SIGNS: &[(&[&str], &str)] = &[
    (
        &["is not set; export it"],
        "export that variable where headend runs: in the shell before `headend serve`, or as `Environment=` or `EnvironmentFile=` of \
         the unit; then start headend again",
    ),
    (
        &["the proxy http", "the proxy in $"],
        "correct `proxy` in [upstreams.NAME], or HTTPS_PROXY and NO_PROXY where the daemon is started; a user and a password stand before the \
         host: `proxy = \"http://user:password@proxy.example.com:3128\"`, or in a file: `proxy = { file = \"/etc/headend/proxy\" }`",
    ),
    (
        &["docker daemon", "docker.sock", "docker desktop is not running", "podman.sock"],
        "start Docker (`sudo systemctl start docker`, or Docker Desktop) and put the user that runs headend into its group: \
         `sudo usermod -aG docker $USER`",
    ),
    (
        &[
            "certificate has expired",
            "certificate is not yet valid",
            "cert_not_yet_valid",
            "cert_has_expired",
            "notvalidyet",
        ],
        "set this machine's clock (`timedatectl set-ntp true`); if it is right, the server's certificate is out of date",
    ),
    (
        &[
            "self-signed certificate",
            "self signed certificate",
            "self_signed_cert",
            "unable_to_get_issuer_cert",
            "unable to get local issuer",
            "unable to get issuer",
            "unable_to_verify_leaf",
            "certificate verify failed",
            "certificate_verify_failed",
            "unknownissuer",
            "invalid peer certificate",
        ],
        "a proxy or firewall with a certificate of its own is between: give its file in [upstreams.NAME], for Node `env = { \
         NODE_EXTRA_CA_CERTS = \"/path/ca.pem\" }`, for Python and uv `env = { SSL_CERT_FILE = \"/path/ca.pem\" }`; for a `url`, \
         add it to the system's certificates (`sudo update-ca-certificates`)",
    ),
    (
        &[
            "no module named",
            "cannot find module",
            "modulenotfounderror",
            "404 not found - get",
            "no such package",
            "e404",
        ],
        "correct the package's name in `command` of [upstreams.NAME], or install what is missing",
    ),
    (
        &["wants a login", "the login has expired", "has ended the login"],
        "log in: `headend login NAME`, with the daemon running; `--paste` where no browser is on this machine",
    ),
    (
        &["http status 401", "http status 403", "refuses the gateway's credentials"],
        "put a token that is valid into `headers` of [upstreams.NAME], such as `headers = { Authorization = { env = \"TOKEN\", prefix = \
         \"Bearer \" } }`, then `headend reload`",
    ),
    (
        &[
            "enotfound",
            "eai_again",
            "name or service not known",
            "temporary failure in name resolution",
            "dns error",
            "failed to lookup address",
        ],
        "the name cannot be resolved: correct the address in [upstreams.NAME], or mend the network's DNS; behind a proxy name it: for a \
         `url` as `proxy = \"http://proxy.example.com:3128\"`, for a program as `env = { HTTPS_PROXY = \"http://proxy.example.com:3128\" }`",
    ),
    (&["connection refused", "econnrefused"], "start that server, or correct the address in [upstreams.NAME]"),
    (
        &["timed out", "etimedout", "network is unreachable", "no route to host"],
        "reach the address from this machine (`curl -v URL`), then correct it in [upstreams.NAME] or mend the network",
    ),
    (
        &["is not set", "environment variable", "missing required env", "api key", "apikey", "api_key", "access token"],
        "the server wants a variable: `env = { NAME_OF_IT = { env = \"NAME_OF_IT\" } }` in [upstreams.NAME] hands it over, then `headend reload`",
    ),
    (
        &["eacces", "permission denied", "eperm"],
        "let the user that runs headend read and write that file: `ls -l` shows whose it is",
    ),
    (&["enospc", "no space left"], "make room on the disk (`df -h`)"),
];

/// Returns the next step for an upstream, by its last output and errors.
pub(super) fn next_step(name: &str, said: &[&str]) -> Option<String> {
    let said: Vec<String> = said.iter().map(|text| text.to_lowercase()).collect();
    let is_there = |sign: &&str| said.iter().any(|text| text.contains(*sign));
    let (_, step) = SIGNS.iter().find(|(signs, _)| signs.iter().any(&is_there))?;
    Some(
        step.replace("[upstreams.NAME]", &format!("[upstreams.{name}]"))
            .replace("login NAME", &format!("login {name}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_said_leads_to_a_step() {
        for (said, want) in [
            ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
            ("npm error request failed, reason: unable to get local issuer certificate", "NODE_EXTRA"),
            ("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start Docker"),
            ("the server refuses the gateway's credentials with HTTP status 401 Unauthorized", "headers"),
            ("`initialize`: the server wants a login (HTTP status 401 Unauthorized)", "`headend login fx`"),
            (
                "connect: Connection refused (os error 111)",
                "start that server, or correct the address in [upstreams.fx]",
            ),
            (
                "connect: the proxy http://p:1 cannot be reached: Connection refused",
                "correct `proxy` in [upstreams.fx]",
            ),
            ("dns error: failed to lookup address information", "proxy = \"http://proxy.example.com:3128\""),
            ("Error: GITHUB_TOKEN environment variable is required", "env ="),
            ("ModuleNotFoundError: No module named 'mcp'", "package"),
        ] {
            let step = next_step("fx", &["nothing", said]).unwrap_or_else(|| panic!("{said}"));
            assert!(step.contains(want) && !step.contains("[upstreams.NAME]"), "{said}: {step}");
        }
        assert_eq!(next_step("fx", &["all is well"]), None);
    }
}
