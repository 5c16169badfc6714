//! The credential of the load: none, the generated token of the gateway, or a JWT of an issuer in
//! this process.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use headend_core::identity::fixtures::{TestKey, key_set};

/// The way in which clients authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BenchAuth {
    #[default]
    Anyone,
    /// The token that the gateway generates for its own user.
    Token,
    Jwt,
}

/// A credential, and what the gateway needs to accept it.
pub(crate) struct BenchCredential {
    /// TOML: the table `[server.auth]` and those below it.
    pub(crate) settings: String,
    /// The file with the token.
    pub(crate) token_file: Option<PathBuf>,
}

impl BenchCredential {
    /// Creates the credential for a gateway whose state is in `folder`.
    ///
    /// # Errors
    /// When a file cannot be written, or no port is free for the issuer.
    pub(crate) fn create(auth: BenchAuth, folder: &Path) -> anyhow::Result<Self> {
        let save = |name: &str, token: &str| {
            let file = folder.join(name);
            fs::write(&file, token).context("write the token")?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).context("protect the token")?;
            anyhow::Ok(file)
        };
        match auth {
            BenchAuth::Anyone => Ok(Self { settings: "[server.auth]\nmode = \"none\"\n".to_owned(), token_file: None }),
            BenchAuth::Token => {
                // The gateway takes the token that it finds in its state directory.
                let file = save("token", "hdnd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")?;
                Ok(Self { settings: String::new(), token_file: Some(file) })
            }
            BenchAuth::Jwt => {
                let key = TestKey::new("bench");
                let issuer = serve_keys(key_set(&[&key]))?;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("read the clock")?;
                let expires = now.as_secs() + 24 * 3600;
                let claims = format!(
                    r#"{{"iss":"{issuer}","aud":"https://bench.example/mcp","exp":{expires},"sub":"alice","client_id":"bench","jti":"0f9d3c1e-6a2b-4c8d-9e7f-5a4b3c2d1e0f","scope":"mcp:read mcp:write"}}"#
                );
                let settings = format!(
                    "[server.limits]\ncaller-rate = \"1000000/s\"\ncaller-burst = 1000000\n\
                     [server.auth]\nmode = [\"token\", \"jwt\"]\npublic-url = \"https://bench.example\"\n\
                     [[server.auth.issuers]]\nname = \"bench\"\nissuer = \"{issuer}\"\njwks = \"{issuer}/keys\"\n"
                );
                Ok(Self { settings, token_file: Some(save("bench.jwt", &key.token(&claims))?) })
            }
        }
    }
}

/// Serves a key set until this program ends, and returns the address of its issuer.
fn serve_keys(keys: String) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen as an issuer")?;
    let address = listener.local_addr().context("listen as an issuer")?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A gateway that goes away is started again.
            drop(answer(stream, &keys));
        }
    });
    Ok(format!("http://{address}"))
}

fn answer(mut stream: TcpStream, keys: &str) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?).lines();
    while head.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let length = keys.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{keys}"
    )
}
