use super::*;

#[test]
fn traditional_characters_become_simplified_ones() {
    for (from, to) in [
        ("該令牌額度已用盡", "该令牌额度已用盡"),
        ("當前分組 default 下模型無可用渠道", "当前分组 default 下模型无可用渠道"),
        ("帳戶餘額不足，請儲值後再試", "帐户余额不足，请储值后再试"),
    ] {
        assert_eq!(simplified(from), to);
    }
    for same in ["", "Incorrect API key provided", "余额不足", "größer"] {
        assert!(matches!(simplified(same), Cow::Borrowed(text) if text == same));
    }
}

#[test]
fn pairs_are_in_order() {
    assert!(PAIRS.is_sorted_by_key(|(from, _)| *from));
    assert!(PAIRS.iter().all(|(from, to)| from != to && plain(*to).is_none()));
}
