use super::*;

fn labels() -> BTreeMap<String, String> {
    [("zone".to_owned(), "eu-1".to_owned()), ("app".to_owned(), "chat bot".to_owned())].into()
}

fn passes(filter: &str) -> bool {
    let labels = labels();
    let facts = Facts {
        connected: true,
        lagging: false,
        build: "1.4.2+g1a2b3c4",
        rollouts: &["12".to_owned()],
        labels: &labels,
    };
    Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}")).matches(facts)
}

#[test]
fn part5_filter_terms() {
    for (filter, right) in [
        ("", true),
        ("connected", true),
        ("NOT connected", false),
        ("-connected", false),
        ("connected = false", false),
        ("connected != false", true),
        ("lagging", false),
        ("connected AND NOT lagging", true),
        ("build = 1.4.2+g1a2b3c4", true),
        ("build=\"1.4.2\"", false),
        ("build != 1.4.2", true),
        ("rollout = 12 AND NOT lagging", true),
        ("rollout = 1", false),
        ("rollout != 1", true),
        ("labels.zone = eu-1", true),
        ("labels.zone=eu-1 and labels.app = \"chat bot\"", true),
        ("labels.zone = us", false),
        ("labels.missing = x", false),
        ("NOT labels.missing = x", true),
    ] {
        assert_eq!(passes(filter), right, "{filter}");
    }
}

#[test]
fn part5_filter_says_what_is_wrong() {
    for (filter, at, problem) in [
        ("colour = red", 1, "unknown field `colour`"),
        ("connected lagging", 11, "expected AND"),
        ("build", 1, "`build` needs `= VALUE`"),
        ("rollout", 1, "`rollout` needs `= VALUE`"),
        ("connected = maybe", 13, "expected true or false"),
        ("connected AND", 14, "expected a field"),
        ("labels. = x", 1, "unknown field `labels.`"),
        ("build = \"x", 9, "unfinished quote"),
        ("(connected)", 1, "unexpected `(`"),
    ] {
        assert_eq!(Filter::parse(filter), Err(BadFilter { at, problem: problem.into() }), "{filter}");
    }
}
