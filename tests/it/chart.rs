//! Charts go in; pictures and terminal text come out, for usual numbers and for odd ones.

use fast_slate::chart::{Axis, Bar, Bars, Chart, Line, Point};

/// Elements in the order in which they begin, each with its attributes; panics on what is no XML.
fn elements(document: &str) -> Vec<(String, String)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for piece in document.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap();
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').chain(tag.split('&')).skip(1) {
            let name = entity.split_once(';').map(|(name, _)| name);
            assert!(
                name.is_some_and(|name| ["lt", "gt", "amp", "quot", "apos"].contains(&name))
                    || tag.contains(entity),
                "{entity}"
            );
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let whole = tag.trim_end_matches('/');
        let (name, attributes) = whole.split_once(' ').unwrap_or((whole, ""));
        found.push((name.to_owned(), attributes.to_owned()));
        if whole == tag {
            open.push(name.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new());
    assert!(!document.chars().any(|c| c.is_control() && c != '\n'));
    found
}

fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = attributes.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// Asserts that `document` is one and that no coordinate lies outside of it.
fn assert_whole(document: &str) -> Vec<(String, String)> {
    let elements = elements(document);
    let frame = attribute(&elements[0].1, "viewBox").unwrap();
    let frame: Vec<f64> = frame.split(' ').map(|number| number.parse().unwrap()).collect();
    for (_, attributes) in &elements[1..] {
        for (names, end) in
            [([" x", " x1", " x2", "cx"], frame[2]), ([" y", " y1", " y2", "cy"], frame[3])]
        {
            for name in names {
                // The first attribute of an element has no space before it.
                let attributes = format!(" {attributes}");
                if let Some(at) = attribute(&attributes, name) {
                    assert!((0.0..=end).contains(&at.parse().unwrap()), "{attributes}");
                }
            }
        }
        for point in attribute(attributes, "points").unwrap_or_default().split_whitespace() {
            let (x, y) = point.split_once(',').unwrap();
            let inside = (0.0..=frame[2]).contains(&x.parse().unwrap())
                && (0.0..=frame[3]).contains(&y.parse().unwrap());
            assert!(inside, "{attributes}");
        }
    }
    elements
}

fn line(name: &str, colour: usize, points: &[(f64, f64, f64)]) -> Line {
    let points = points.iter().map(|&(x, y, error)| Point { x, y, error }).collect();
    Line { name: name.to_owned(), colour, points }
}

fn chart(logarithmic: bool, lines: Vec<Line>) -> Chart {
    let axis = |name: &str| Axis { name: name.to_owned(), logarithmic };
    Chart {
        title: "Rewards".to_owned(),
        x: axis("seconds of training"),
        y: axis("reward of a slate"),
        lines,
    }
}

fn bars(bars: &[(&str, Option<(f64, f64)>)]) -> Bars {
    let bar = |(colour, &(name, value)): (usize, &(&str, _))| Bar {
        name: name.to_owned(),
        colour,
        value,
    };
    let bars = bars.iter().enumerate().map(bar).collect();
    Bars { title: "Rewards".to_owned(), y: "reward of a slate".to_owned(), bars }
}

#[test]
fn a_picture_says_what_it_shows() {
    let rising = [(0.0, 0.1, 0.01), (10.0, 0.3, 0.02), (20.0, 0.35, 0.01)];
    let svg = chart(false, vec![line("LGP", 0, &rising), line("a<b & \"c\"", 9, &rising[..2])]);
    let svg = svg.svg().unwrap();
    let elements = assert_whole(&svg);
    for part in ["Rewards", "seconds of training", "reward of a slate", "LGP", "a&lt;b &amp; "] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    let said = |name: &str| attribute(&elements[0].1, name);
    assert_eq!((said("width"), said("role")), (Some("380"), Some("img")));
    assert!(svg.contains("prefers-color-scheme:dark"));
    // A path, a band and the dots of each line, in its colour; that of the legend beside them.
    for (colour, dots) in [("#0072B2", 4), ("#D55E01", 3)] {
        let drawn = |tag: &str, what: &str| {
            let is = |(name, attributes): &&(String, String)| {
                name == tag && attribute(attributes, what) == Some(colour)
            };
            elements.iter().filter(is).count()
        };
        assert_eq!(drawn("polyline", "stroke"), 2, "{colour}");
        assert_eq!(drawn("circle", "fill"), dots, "{colour}");
    }
    assert_eq!(elements.iter().filter(|(name, _)| name == "polygon").count(), 2);
    // The tenth colour is the second again, dashed, and dark where the page is.
    assert!(svg.contains("[stroke=\"#D55E01\"]{stroke-dasharray"), "{svg}");
    assert!(svg.contains("[stroke=\"#D55E01\"]{stroke:#F27D3A}"), "{svg}");
}

#[test]
fn whatever_is_drawn_stays_within_the_picture() {
    let odd = [
        (f64::NAN, 1.0, 0.0),
        (0.0, f64::INFINITY, 0.0),
        (0.0, 0.0, f64::NAN),
        (-1.0, -1.0, f64::INFINITY),
        (3.0, 2.0, 5.0),
        (1e300, 1e300, 1e308),
        (1e-300, 1e-320, -2.0),
    ];
    let long =
        "a name that is much too long for a legend that is as wide as a phone \u{7} 目目目目";
    for logarithmic in [false, true] {
        let crowd =
            (0..20).map(|at| line(&format!("{at} {long}"), at, &[(1.0, 1.0 + at as f64, 0.5)]));
        for lines in [
            vec![],
            vec![line("none", 0, &[])],
            vec![line("one", 0, &odd[4..5])],
            vec![line("odd", 0, &odd)],
            vec![line("flat", 0, &[(1.0, 7.0, 0.0), (2.0, 7.0, 0.0)])],
            crowd.collect(),
        ] {
            let chart = chart(logarithmic, lines);
            assert_whole(&chart.svg().unwrap());
            for columns in [0, 30, 80, 100_000] {
                let text = chart.terminal(columns, true);
                assert!(text.starts_with("Rew") || columns < 7, "{text}");
            }
        }
    }
    for shown in [
        &[][..],
        &[("none", None)],
        &[("NaN", Some((f64::NAN, 0.0))), ("inf", Some((1.0, f64::INFINITY)))],
        &[("0", Some((0.0, 0.0)))],
        &[(long, Some((-3.0, 1.0))), ("b", Some((1e300, 0.0)))],
    ] {
        assert_whole(&bars(shown).svg().unwrap());
    }
}

#[test]
fn what_is_not_there_is_said() {
    let nothing = chart(true, vec![line("LGP", 0, &[(1.0, 0.0, 0.0), (2.0, f64::NAN, 0.0)])]);
    let svg = nothing.svg().unwrap();
    assert!(svg.contains("no data") && svg.contains("LGP (N/A)"), "{svg}");
    assert!(nothing.terminal(80, false).contains("no data"));
    let svg = bars(&[("LGP", Some((0.351, 0.004))), ("PL-Rank", None)]).svg().unwrap();
    assert!(svg.contains("0.351 ± 0.004") && svg.contains("N/A"), "{svg}");
}

#[test]
fn bars_begin_at_zero_and_are_as_long_as_their_values() {
    let svg =
        bars(&[("up", Some((2.0, 0.0))), ("half", Some((1.0, 0.0))), ("down", Some((-1.0, 0.0)))]);
    let svg = svg.svg().unwrap();
    let number =
        |attributes: &str, name| attribute(attributes, name).unwrap().parse::<i32>().unwrap();
    let drawn = assert_whole(&svg);
    let rows = drawn.iter().filter(|(name, _)| name == "rect");
    let rows: Vec<_> = rows
        .map(|(_, row)| {
            let row = &format!(" {row}");
            (number(row, " x"), number(row, " width"))
        })
        .collect();
    let [(zero, two), (also_zero, one), (left, minus_one)] = rows[..] else { panic!("{rows:?}") };
    assert_eq!(zero, also_zero);
    assert!((two - 2 * one).abs() < 4 && (minus_one - one).abs() < 4, "{rows:?}");
    assert!((left + minus_one - zero).abs() < 4, "{rows:?}");
}

#[test]
fn a_terminal_shows_where_each_line_ends() {
    let lines = vec![
        line("long", 0, &[(0.0, 0.0, 0.0), (100.0, 1.0, 0.0)]),
        line("short", 1, &[(0.0, 0.0, 0.0), (50.0, 1.0, 0.1)]),
    ];
    let chart = chart(false, lines);
    let text = chart.terminal(60, false);
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(!text.contains('\x1b'));
    let top = text.lines().position(|line| line.contains('│') || line.contains('┤')).unwrap();
    let ends = text.lines().skip(top).take(3).find(|line| line.ends_with('a')).unwrap();
    let short = ends.chars().position(|c| c == 'b').unwrap();
    assert!((28..36).contains(&short), "{text}");
    assert!(text.contains("\na long   1.000\nb short  1.00 ± 0.10\n"), "{text}");
    assert!(text.contains(" 0 ┤") && text.contains("seconds of training"), "{text}");
    assert!(chart.terminal(60, true).contains("\x1b[34m"));
}
