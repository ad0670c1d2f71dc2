//! Tests of the table with made-up numbers.

use super::super::rows;
use super::super::tools::Latency;
use super::*;

fn sample(rate: f64, cpu_per_gb: f64, p99: f64) -> Sample {
    Sample {
        rate,
        bytes_rate: rate * 100.0,
        latency: Some(Latency { mean: 1.0, p50: 1.0, p99, p999: p99 * 2.0 }),
        cpu_seconds: 1.0,
        cpu_per_gb,
        ..Sample::default()
    }
}

fn round(system: System, samples: Vec<Sample>) -> RoundResult {
    RoundResult { system, start_seconds: 3.0, peak_bytes: 900 << 20, cpu_seconds: 9.0, samples }
}

fn machine() -> Machine {
    Machine {
        cpu: "X".to_owned(),
        cores: 2,
        kernel: "6".to_owned(),
        memory: 24 << 30,
        sync_millis: 0.5,
        load: "0.1".to_owned(),
        commit: "abc".to_owned(),
        date: "2026-11-30".to_owned(),
    }
}

fn options(rows: &str) -> Options {
    let args = ["--systems", "kafka,talos", "--rows", rows].map(str::to_owned);
    Options::parse(&args).unwrap().unwrap()
}

#[test]
fn cells_hold_medians_and_ratios() {
    let options = options("produce-100-1,rate-2k");
    let rounds = [
        round(System::Kafka, vec![sample(100_000.0, 10.0, 50.0), sample(2000.0, 10.0, 50.0)]),
        round(System::Talos, vec![sample(100_000.0, 5.0, 10.0), sample(2000.0, 5.0, 10.0)]),
        round(System::Kafka, vec![sample(200_000.0, 20.0, 60.0), sample(2000.0, 10.0, 50.0)]),
        round(System::Talos, vec![sample(500_000.0, 5.0, 10.0), sample(2000.0, 5.0, 10.0)]),
        round(System::Kafka, vec![sample(900_000.0, 90.0, 70.0), sample(2000.0, 10.0, 50.0)]),
        round(System::Talos, vec![Sample::failed("why".to_owned()), sample(2000.0, 5.0, 10.0)]),
    ];
    let machine = machine();
    let text = Report::new(&machine, "cargo xtask bench-kafka", &options, &rounds).markdown();
    let line = text.lines().find(|line| line.starts_with("| produce 100 B")).unwrap();
    assert!(line.contains("200,000/s, 19.1 MiB/s, p99 60.0 ms, 20.0 CPU s/GB"), "{line}");
    assert!(line.contains("300,000/s"), "{line}");
    assert!(line.contains("(**failed** in 1 of 3)"), "{line}");
    assert!(line.contains("throughput 1.50, CPU 0.25"), "{line}");
    let line = text.lines().find(|line| line.starts_with("| fixed 2,000/s")).unwrap();
    assert!(line.contains("p50 1.00, p99 50.0, p99.9 100 ms"), "{line}");
    assert!(line.contains("p50 1.00, p99 0.20, CPU 0.50"), "{line}");
    assert!(text.contains("failed: why"), "{text}");
    assert!(text.contains("in the page cache"), "{text}");
    let table: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert!(table.iter().all(|line| line.matches('|').count() == 5), "{table:#?}");
}

#[test]
fn a_row_without_numbers_says_so() {
    let options = options("end-to-end");
    let rounds = [
        round(System::Kafka, vec![sample(1.0, 1.0, 1.0)]),
        round(System::Talos, vec![Sample::failed("x".to_owned())]),
    ];
    let machine = machine();
    let report = Report::new(&machine, "c", &options, &rounds);
    let text = report.markdown();
    assert!(text.contains("| **failed** | none |"), "{text}");
    let json = report.json();
    assert_eq!(json["rounds"][1]["rows"]["end-to-end"]["failure"], "x");
    assert_eq!(json["rounds"][0]["rows"]["end-to-end"]["latency_ms"]["p99.9"], 2.0);
}

#[test]
fn the_newest_section_comes_first() {
    let page = format!("# B\n\n{MARK}\n");
    let once = insert(&page, "## one\n").unwrap();
    assert_eq!(once, format!("# B\n\n{MARK}\n\n## one\n"));
    let twice = insert(&once, "## two\n").unwrap();
    assert_eq!(twice, format!("# B\n\n{MARK}\n\n## two\n\n## one\n"));
    assert!(insert("# B\n", "x").is_none());
}

#[test]
fn every_row_has_a_cell() {
    for row in rows::ROWS {
        let cell = Cell { rate: Some(1.0), ..Cell::default() };
        assert!(!cell.text(row).is_empty());
        assert_eq!(cell.ratio(&Cell::default(), row), "none");
    }
}
