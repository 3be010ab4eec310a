use spareline_proto::registry::v1::{Channel, Endpoint};

use super::*;
use crate::reflect;

fn channel(text: &str) -> (Channel, Vec<String>) {
    let mut problems = Problems::default();
    let node = parse(text).unwrap();
    let tree = message(
        &node,
        &reflect::descriptor::<Channel>().unwrap(),
        "",
        Extra { hidden: &["etag"], own: &["own"] },
        &mut problems,
    );
    (reflect::from_tree(&tree).unwrap(), problems.list.iter().map(ToString::to_string).collect())
}

#[test]
fn part5_yaml_reads_every_kind_of_field() {
    let (channel, problems) = channel(
        "name: a\nweight: 0\nmultiplier: 2\nauto_disable: false\nlabels: {zone: eu}\nendpoints: [chat_completions]\n\
         models:\n- short\n- {model: long, upstream_model: up, priority: -1}\nattempt_policy: {connect_timeout: 1500ms}\nown: x\n",
    );
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(channel.weight, Some(0));
    assert_eq!(channel.multiplier, Some(2.0));
    assert_eq!(channel.auto_disable, Some(false));
    assert_eq!(channel.labels["zone"], "eu");
    assert_eq!(channel.endpoints, [Endpoint::ChatCompletions as i32]);
    assert_eq!(channel.models[0].model, "short");
    assert_eq!((channel.models[1].upstream_model.as_str(), channel.models[1].priority), ("up", Some(-1)));
    let connect = channel.attempt_policy.unwrap().connect_timeout.unwrap();
    assert_eq!((connect.seconds, connect.nanos), (1, 500_000_000));
}

#[test]
fn part5_yaml_names_every_mistake_with_its_line() {
    let (_, problems) = channel(
        "name: 42\nweight: -1\nnonsense: 1\netag: x\nmodels:\n- modle: a\nendpoints: [chat]\nattempt_policy: {connect_timeout: 5}\n",
    );
    let expected = [
        ("line 1", "name", "in quotes"),
        ("line 2", "weight", "from 0 to"),
        ("line 3", "nonsense", "unknown field"),
        ("line 4", "etag", "set by the control plane"),
        ("line 6", "models[0].modle", "unknown field"),
        ("line 7", "endpoints[0]", "one of chat_completions"),
        ("line 8", "attempt_policy.connect_timeout", "must be a time"),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, (line, path, what)) in problems.iter().zip(expected) {
        assert!(
            problem.starts_with(line) && problem.contains(&format!(": {path}: ")) && problem.contains(what),
            "{problem}"
        );
    }
}

#[test]
fn part5_yaml_broken_and_doubled_keys_have_a_line() {
    let broken = parse("a: 1\nb: [1\n").unwrap_err();
    assert!(broken.line >= 2, "{broken}");
    let doubled = parse("a: 1\na: 2\n").unwrap_err();
    assert_eq!(doubled.line, 2, "{doubled}");
}

#[test]
fn part5_yaml_objections_find_the_nearest_line() {
    let mut problems = Problems::default();
    let node = parse("name: a\nmodels:\n- model: x\n").unwrap();
    message(
        &node,
        &reflect::descriptor::<Channel>().unwrap(),
        "channels[0]",
        Extra::default(),
        &mut problems,
    );
    problems.at_path("channels[0].models[0].weight", "no");
    problems.at_path("elsewhere", "no");
    assert_eq!(problems.list[0].line, 3);
    assert_eq!(problems.list[1].line, 0);
}
