//! Commands that run a container: `docker run` and the like. The program that headend starts is
//! only a client then; the container is the child of a daemon, and outlives that client.

/// Programs with the command line of `docker`.
const PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];
/// Options before the command whose value is the next word.
const VALUED: [&str; 17] = [
    "--config",
    "-c",
    "--context",
    "-H",
    "--host",
    "-l",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--url",
    "--connection",
    "--identity",
    "--root",
    "--runroot",
    "-n",
    "--namespace",
];

/// Options of `run` whose value is the next word.
const RUN_VALUED: &str = "--add-host --cap-add --cap-drop --cgroupns --cpus --cpuset-cpus --device --dns --entrypoint --env --env-file \
     --expose --gpus --group-add --hostname --ip --ipc --label --log-driver --log-opt --memory --memory-swap --mount --name \
     --network --network-alias --pid --pids-limit --platform --publish --pull --restart --runtime --security-opt --shm-size \
     --stop-signal --stop-timeout --sysctl --tmpfs --ulimit --user --userns --volume --volumes-from --workdir \
     -a -c -e -h -l -m -p -u -v -w";
/// Options of `run` without a value.
const RUN_FLAGS: &str =
    "--detach --init --interactive --no-healthcheck --privileged --publish-all --quiet --read-only --rm --tty";

/// The parts of a command that runs a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerRun<'a> {
    /// The options between the program and its command, such as `--context x`.
    pub global: &'a [String],
    /// `run`, or `container run`.
    pub command: &'a [String],
    /// Options, image and arguments.
    pub rest: &'a [String],
}

impl<'a> ContainerRun<'a> {
    /// Reads a command; `None` if it visibly runs no container.
    pub fn of(words: &'a [String]) -> Option<Self> {
        let (program, words) = words.split_first()?;
        PROGRAMS.contains(&program.rsplit('/').next()?).then_some(())?;
        let mut at = 0;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            at += if VALUED.contains(&word.as_str()) { 2 } else { 1 };
        }
        let (global, words) = words.split_at_checked(at)?;
        let length = match words.first()?.as_str() {
            "run" => 1,
            "container" if words.get(1)? == "run" => 2,
            _ => return None,
        };
        let (command, rest) = words.split_at_checked(length)?;
        Some(Self { global, command, rest })
    }

    /// Reports whether the container gets no standard input: there is neither `-i`, also among
    /// other letters, nor `--interactive`.
    pub fn lacks_stdin(self) -> bool {
        let is_it = |word: &String| {
            let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            let short =
                letters.is_some_and(|letters| letters.split('=').next().is_some_and(|names| names.contains('i')));
            short || word == "--interactive" || word == "--interactive=true"
        };
        !self.rest.iter().any(is_it)
    }

    /// Returns the image if it has no tag but `latest` and no digest; `None` too if an unknown
    /// option stands before it.
    pub(crate) fn untagged_image(self) -> Option<&'a str> {
        let is_in = |known: &str, word: &str| known.split_whitespace().any(|one| one == word);
        let mut words = self.rest.iter();
        let image = loop {
            let word = words.next()?;
            let Some(letters) = word.strip_prefix('-') else { break word.as_str() };
            match () {
                () if word.contains('=') || is_in(RUN_FLAGS, word) || letters.chars().all(|c| "itdqP".contains(c)) => {}
                () if is_in(RUN_VALUED, word) => drop(words.next()),
                () => return None,
            }
        };
        let name = image.rsplit('/').next()?;
        let name = name.strip_suffix(":latest").unwrap_or(name);
        (!name.is_empty() && !name.contains([':', '@', '$'])).then(|| image.trim_end_matches(":latest"))
    }

    /// Returns the missing options without which a server does not end as it should.
    pub(crate) fn missing(self) -> Vec<&'static str> {
        let has = |option: &str| {
            let is_it = |word: &String| word == option || word.strip_prefix(option) == Some("=true");
            self.rest.iter().any(is_it)
        };
        ["--rm", "--init"].into_iter().filter(|option| !has(option)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_container_without_an_input_is_seen() {
        for (line, want) in [
            ("docker run mcp/time", true),
            ("docker run --rm --init mcp/time", true),
            ("docker run -i mcp/time", false),
            ("docker run -it mcp/time", false),
            ("docker run --rm --interactive mcp/time", false),
            ("podman run --interactive=true mcp/time", false),
        ] {
            assert_eq!(ContainerRun::of(&words(line)).map(ContainerRun::lacks_stdin), Some(want), "{line}");
        }
    }

    #[test]
    fn an_image_without_a_tag_is_found_behind_the_options() {
        for (line, want) in [
            ("docker run -i --rm --init mcp/time", Some("mcp/time")),
            ("docker run -it -e KEY -v /a:/b --name=x host:5000/mcp/time:latest --flag", Some("host:5000/mcp/time")),
            ("podman run --env KEY --mount type=bind,src=/a time", Some("time")),
            ("docker run -i mcp/time:1.2", None),
            ("docker run -i mcp/time@sha256:0123", None),
            ("docker run --unknown x mcp/time", None),
            ("docker run -i", None),
        ] {
            assert_eq!(ContainerRun::of(&words(line)).and_then(ContainerRun::untagged_image), want, "{line}");
        }
    }

    #[test]
    fn commands_that_run_a_container_are_told_from_others() {
        for (line, want) in [
            ("docker run -i --rm --init mcp/time", Some((0, 1, vec![]))),
            ("/usr/bin/podman run --rm=true mcp/time", Some((0, 1, vec!["--init"]))),
            ("docker --context x -D container run -i mcp/time", Some((3, 2, vec!["--rm", "--init"]))),
            ("docker --host=tcp://x run mcp/time --rm", Some((1, 1, vec!["--init"]))),
            ("docker", None),
            ("docker --context", None),
            ("docker exec -i x server", None),
            ("docker container exec x run", None),
            ("docker-compose run x", None),
            ("npx run", None),
            ("sh -c docker run", None),
        ] {
            let line = words(line);
            let got = ContainerRun::of(&line).map(|run| (run.global.len(), run.command.len(), run.missing()));
            assert_eq!(got, want, "{line:?}");
        }
    }
}
