//! The commands of a Markdown page that are to be run as they stand.
//!
//! A fenced block whose info string is `sh test` is one of them. All blocks of a page run in order in one `bash -eu`
//! at the root of the workspace, with the variables of the quickstart's stack (see `tests/README.md`).

/// A block to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its first command, from 1.
    pub line: usize,
    /// What to run.
    pub script: String,
}

/// The `sh test` blocks of a page, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut fence: Option<(String, Option<Block>)> = None;
    for (i, line) in page.lines().enumerate() {
        let trimmed = line.trim_start();
        match &mut fence {
            None => {
                let ticks: String = trimmed.chars().take_while(|&c| c == '`').collect();
                if ticks.len() >= 3 {
                    let info = trimmed[ticks.len()..].trim();
                    let block = (info == "sh test").then(|| Block { line: i + 2, script: String::new() });
                    fence = Some((ticks, block));
                }
            }
            Some((ticks, block)) if trimmed.trim_end() == ticks => {
                blocks.extend(block.take());
                fence = None;
            }
            Some((_, Some(block))) => {
                block.script.push_str(line);
                block.script.push('\n');
            }
            Some((_, None)) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_marked_as_tests_are_taken_and_whole() {
        let page = "a\n```sh\nno\n```\n```sh test\necho 1\n\necho 2\n```\n````md\n```sh test\nno\n```\n````\n```sh test\necho 3\n```\n";
        let found = blocks(page);
        assert_eq!(
            found,
            [
                Block { line: 6, script: "echo 1\n\necho 2\n".into() },
                Block { line: 16, script: "echo 3\n".into() }
            ]
        );
    }
}
