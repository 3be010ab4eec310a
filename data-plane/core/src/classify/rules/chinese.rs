//! Traditional characters as their simplified ones, so that one phrase reads both.

use std::borrow::Cow;

/// As far as phrases reach, in bytes.
const START: usize = 512;

/// Characters of what providers and relays say, in order.
const PAIRS: &[(char, char)] = &[
    ('傳', '传'),
    ('內', '内'),
    ('別', '别'),
    ('劃', '划'),
    ('務', '务'),
    ('參', '参'),
    ('問', '问'),
    ('圖', '图'),
    ('執', '执'),
    ('實', '实'),
    ('寫', '写'),
    ('專', '专'),
    ('對', '对'),
    ('屬', '属'),
    ('帳', '帐'),
    ('庫', '库'),
    ('後', '后'),
    ('從', '从'),
    ('態', '态'),
    ('應', '应'),
    ('戶', '户'),
    ('擇', '择'),
    ('據', '据'),
    ('數', '数'),
    ('斷', '断'),
    ('於', '于'),
    ('時', '时'),
    ('條', '条'),
    ('業', '业'),
    ('標', '标'),
    ('檔', '档'),
    ('檢', '检'),
    ('權', '权'),
    ('測', '测'),
    ('灣', '湾'),
    ('無', '无'),
    ('狀', '状'),
    ('環', '环'),
    ('產', '产'),
    ('異', '异'),
    ('當', '当'),
    ('發', '发'),
    ('紅', '红'),
    ('紐', '纽'),
    ('級', '级'),
    ('終', '终'),
    ('組', '组'),
    ('結', '结'),
    ('絡', '络'),
    ('給', '给'),
    ('維', '维'),
    ('網', '网'),
    ('線', '线'),
    ('縮', '缩'),
    ('續', '续'),
    ('義', '义'),
    ('聲', '声'),
    ('臺', '台'),
    ('舊', '旧'),
    ('處', '处'),
    ('號', '号'),
    ('規', '规'),
    ('視', '视'),
    ('觸', '触'),
    ('計', '计'),
    ('訪', '访'),
    ('設', '设'),
    ('許', '许'),
    ('試', '试'),
    ('該', '该'),
    ('認', '认'),
    ('語', '语'),
    ('誤', '误'),
    ('說', '说'),
    ('調', '调'),
    ('請', '请'),
    ('證', '证'),
    ('識', '识'),
    ('護', '护'),
    ('讀', '读'),
    ('讓', '让'),
    ('負', '负'),
    ('買', '买'),
    ('費', '费'),
    ('資', '资'),
    ('賬', '账'),
    ('購', '购'),
    ('較', '较'),
    ('載', '载'),
    ('輸', '输'),
    ('連', '连'),
    ('過', '过'),
    ('達', '达'),
    ('違', '违'),
    ('選', '选'),
    ('錢', '钱'),
    ('錯', '错'),
    ('長', '长'),
    ('閉', '闭'),
    ('開', '开'),
    ('間', '间'),
    ('關', '关'),
    ('險', '险'),
    ('響', '响'),
    ('項', '项'),
    ('頻', '频'),
    ('額', '额'),
    ('類', '类'),
    ('飽', '饱'),
    ('餘', '余'),
    ('體', '体'),
];

/// The start of `message` in simplified characters; what has none to replace stays as it is.
pub(super) fn simplified(message: &str) -> Cow<'_, str> {
    let start = message.get(..message.floor_char_boundary(START)).unwrap_or(message);
    if start.is_ascii() || !start.chars().any(|c| plain(c).is_some()) {
        return Cow::Borrowed(message);
    }
    Cow::Owned(start.chars().map(|c| plain(c).unwrap_or(c)).collect())
}

fn plain(c: char) -> Option<char> {
    let at = PAIRS.binary_search_by_key(&c, |(from, _)| *from).ok()?;
    PAIRS.get(at).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests;
