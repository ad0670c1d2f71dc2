//! Medians and how numbers are written.

/// The middle value, the mean of the two middle ones for an even count; none of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

/// Largest less smallest over the median, as a share; none of nothing.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let median = median(values)?;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (median > 0.0).then(|| (most - least) / median)
}

/// With thousands separated and no fraction.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// With two or three digits that mean something.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => whole(v),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[1.0, 2.0, 3.0]), Some(1.0));
        assert_eq!(spread(&[0.0]), None);
    }

    #[test]
    fn numbers_are_written_short() {
        assert_eq!(whole(1_234_567.4), "1,234,567");
        assert_eq!(whole(-123.0), "-123");
        assert_eq!(whole(12.0), "12");
        assert_eq!(
            (short(1234.5), short(34.67), short(1.314)),
            ("1,234".into(), "34.7".into(), "1.31".into())
        );
    }
}
