use proptest::prelude::*;

use super::*;

type Seen = (Option<String>, Vec<u8>, bool);

fn scan(chunks: &[&[u8]], cap: usize) -> Vec<Seen> {
    let mut scanner = Scanner::with_cap(cap);
    let mut seen = Vec::new();
    let mut note = |event: Event<'_>| {
        seen.push((event.name.map(str::to_owned), event.data.to_vec(), event.too_long));
        Flow::Continue
    };
    for chunk in chunks {
        assert_eq!(scanner.push(chunk, &mut note), chunk.len());
    }
    scanner.finish(&mut note);
    seen
}

fn one(text: &str) -> Vec<(Option<String>, String)> {
    scan(&[text.as_bytes()], DEFAULT_CAP)
        .into_iter()
        .map(|(name, data, _)| (name, String::from_utf8(data).unwrap()))
        .collect()
}

fn data(text: &str) -> Vec<String> {
    one(text).into_iter().map(|(_, data)| data).collect()
}

#[test]
fn all_three_line_ends_and_no_others() {
    for end in ["\n", "\r\n", "\r"] {
        let text =
            ["event: a", "data: 1", "", ": note", "data:2", "data: 3", "", "id: 9", "data", "", ""].join(end);
        let want =
            vec![(Some("a".to_owned()), "1".to_owned()), (None, "2\n3".to_owned()), (None, String::new())];
        assert_eq!(one(&text), want, "{end:?}");
    }
    let inside = "data: a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\n\n";
    assert_eq!(data(inside), ["a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f"]);
}

#[test]
fn one_blank_after_the_colon_is_dropped_and_no_more() {
    assert_eq!(data("data:  x\n\ndata:\ty\n\ndata: \n\n"), [" x", "\ty", ""]);
}

#[test]
fn comments_names_alone_and_unknown_fields_make_no_event() {
    assert_eq!(one(": keep-alive\n\nevent: ping\n\nretry: 5\n\ndatax: 1\n\neventful: 2\n\n"), []);
    assert_eq!(one("event: ping\n\ndata: 1\n\n"), [(None, "1".to_owned())], "the name went with its event");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_field() {
    assert_eq!(data("\u{feff}data: 1\n\n\u{feff}data: 2\n\n"), ["1"]);
}

#[test]
fn a_cap_below_the_field_name_still_tells_data_from_the_rest() {
    let text = "\u{feff}data: 123\n\n".as_bytes();
    for cut in 0..text.len() {
        assert_eq!(scan(&[&text[..cut], &text[cut..]], 6), [(None, Vec::new(), true)], "cut at {cut}");
    }
}

#[test]
fn a_comment_may_name_a_status_for_its_event_alone() {
    let mut seen = Vec::new();
    let text = b"id:1\nevent:error\n:HTTP_STATUS/429\ndata:{}\n\n:HTTP_STATUS/x\ndata: 2\n\n";
    for cut in 0..text.len() {
        seen.clear();
        let mut scanner = Scanner::new();
        for part in [&text[..cut], &text[cut..]] {
            scanner.push(part, |event| {
                seen.push(event.status);
                Flow::Continue
            });
        }
        assert_eq!(seen, [Some(429), None], "cut at {cut}");
    }
}

#[test]
fn the_last_event_may_lack_its_blank_line() {
    assert_eq!(data("data: 1\n\ndata: [DONE]"), ["1", "[DONE]"]);
    assert_eq!(data("data: 1\n\ndata: [DONE]\n"), ["1", "[DONE]"]);
    assert_eq!(data("data: 1\n\n"), ["1"]);
}

#[test]
fn above_the_cap_the_event_is_named_but_not_kept_and_the_next_is_seen() {
    let long = "x".repeat(40);
    let text = format!(
        "event: big\ndata: {long}\n\ndata: 1\n\n:{long}\ndata: 2\n\ndata: aaaaaaaaaaaaaaaaaa\ndata: bbbbbbb\n\n"
    );
    let seen = scan(&[text.as_bytes()], 24);
    let want: Vec<Seen> = vec![
        (Some("big".into()), vec![], true),
        (None, b"1".to_vec(), false),
        (None, b"2".to_vec(), false),
        (None, vec![], true),
    ];
    assert_eq!(seen, want);
    for at in 0..text.len() {
        let (a, b) = text.as_bytes().split_at(at);
        assert_eq!(scan(&[a, b], 24), want, "split at {at}");
    }
}

#[test]
fn memory_stays_bounded_by_the_cap() {
    let mut scanner = Scanner::with_cap(1024);
    scanner.push(b"data: ", |_| Flow::Continue);
    for _ in 0..1_000 {
        scanner.push(&[b'x'; 4096], |_| Flow::Continue);
    }
    assert!(scanner.line.capacity() + scanner.data.capacity() <= 8192);
    assert!(scanner.mid_event());
}

#[test]
fn stop_leaves_the_rest_alone_and_says_where() {
    let text = b"data: 1\r\n\r\ndata: 2\r\n\r\n";
    let mut scanner = Scanner::new();
    assert_eq!(scanner.push(text, |_| Flow::Stop), 11 - 1 + 1);
    assert!(!scanner.mid_event() && !scanner.expects_lf());
}

#[test]
fn a_crlf_cut_in_its_middle_is_waited_for_and_a_bare_cr_is_not() {
    let mut scanner = Scanner::new();
    let mut events = 0;
    scanner.push(b"data: 1\r\n\r", |_| {
        events += 1;
        Flow::Stop
    });
    assert!(events == 1 && scanner.expects_lf());
    scanner.push(b"\n", |_| Flow::Continue);
    assert!(!scanner.expects_lf());

    let mut scanner = Scanner::new();
    scanner.push(b"data: 1\r\r", |_| Flow::Continue);
    assert!(!scanner.expects_lf());
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("\n".to_owned()),
        Just("\r".to_owned()),
        Just("\r\n".to_owned()),
        Just("data: ".to_owned()),
        Just("data:".to_owned()),
        Just("event: x".to_owned()),
        Just(": c".to_owned()),
        Just("\u{feff}".to_owned()),
        "[a-z\u{2028}\u{e9}:]{0,12}",
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_chunking_gives_the_same_events(
        text in stream(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        cap in prop_oneof![Just(DEFAULT_CAP), 6usize..30],
    ) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in at {
            chunks.push(&text[from..cut]);
            from = cut;
        }
        chunks.push(&text[from..]);
        prop_assert_eq!(scan(&chunks, cap), scan(&[&text], cap));
    }
}
