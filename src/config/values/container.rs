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
