use std::{io::Write, sync::Arc, time::Duration};

use super::*;

#[derive(Clone, Default)]
struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn part11_a_hand_made_line_is_one_json_object() {
    let out = Shared::default();
    let (sink, guard) = Sink::start(Box::new(out.clone()));
    let logger = Logger::new(sink, true, true);
    let mut line = logger.line("request_finished", "finished \"it\"\n").unwrap();
    line.text("model", "a\\b\u{1}é")
        .number("status", 200)
        .maybe("tokens", None)
        .ms("total_ms", Duration::from_micros(1234));
    line.flag("stream", false).write("attempts", |json| json.push_str("[{\"n\":1}]"));
    logger.write(line);
    drop(guard);
    let bytes = out.0.lock().unwrap().clone();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(value["event"], "request_finished");
    assert_eq!(value["message"], "finished \"it\"\n");
    assert_eq!(value["model"], "a\\b\u{1}é");
    assert_eq!(value["total_ms"], 1.234);
    assert_eq!(value["attempts"][0]["n"], 1);
    assert!(value.get("tokens").is_none());
    assert!(value["timestamp"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn a_reader_that_never_reads_costs_no_memory() {
    struct Stuck(std::sync::mpsc::Receiver<()>);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (release, wait) = std::sync::mpsc::channel();
    let (sink, guard) = Sink::start(Box::new(Stuck(wait)));
    for _ in 0..40 {
        sink.push(&[b'x'; 1 << 20]);
    }
    assert!(sink.dropped() >= 40 - 17, "{}", sink.dropped());
    drop(release);
    drop(guard);
}

#[test]
fn a_bare_level_is_about_our_own_crates() {
    let trace = targets("trace");
    assert!(trace.would_enable("spareline_proxy::failover", &tracing::Level::TRACE));
    assert!(
        trace.would_enable("h2", &tracing::Level::INFO) && !trace.would_enable("h2", &tracing::Level::DEBUG)
    );
    let mixed = targets("warn,h2=debug,spareline_proxy=info");
    assert!(mixed.would_enable("h2::codec", &tracing::Level::DEBUG));
    assert!(mixed.would_enable("spareline_proxy", &tracing::Level::INFO));
    assert!(!mixed.would_enable("spareline_core", &tracing::Level::INFO));
    assert!(!mixed.would_enable("tonic", &tracing::Level::INFO));
}
