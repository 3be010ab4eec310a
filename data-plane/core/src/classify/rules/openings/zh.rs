//! The same of Chinese, which has no spaces: piece by piece.

use super::WORDS;

/// What it is about, and what is wrong with it.
pub(super) type Pair = (&'static str, &'static str);

pub(super) const MONEY: &[Pair] = &[
    ("余额 额度 积分 点数 资源包余量 资源包 套餐 订阅", "不足 用完 用尽 耗尽 到期 过期 未购买 未订阅"),
    ("账户 账号 帐户 帐号", "欠费"),
    ("停机 停服 停用", "欠费"),
];

pub(super) const WHO: &[Pair] = &[
    ("api密钥 密钥 令牌 apikey", "无效 失效 过期 不存在 错误 吊销 封禁 禁用 停用 冻结"),
    ("账号 账户 帐号 帐户 用户", "封禁 禁用 停用 冻结 封停 注销"),
    ("鉴权 认证 签名", "失败 错误"),
];

pub(super) const RATE: &[Pair] = &[
    ("请求 访问 调用", "频繁 过快 频率过高 频率超限"),
    ("并发 频率 速率 限流 qps", "过高 超限 超过 超出 达到 触发"),
];

pub(super) const BUSY: &[Pair] = &[(
    "系统 服务器 服务 模型 上游 网络 算力 内部",
    "繁忙 过载 负载过高 负载已饱和 超时 错误 暂不可用 暂时不可用 异常 不足",
)];

pub(super) const MODEL: &[Pair] = &[(
    "模型",
    "不存在 未找到 找不到 未开通 未启用 下线 下架 停用 弃用 不可用 无权 没有权限 未授权 名称错误 不支持",
)];

const BETWEEN: &str = "您的 你的 您 你 该 此 当前 剩余 可用 免费 用户 账户 账号 令牌 已被 已经 已 被 或 未 无 数 的 太 \
                          过于 使用 访问 请求 调用 次数 限制 暂 请 分组 系统 内部";

/// Behind a model its name may stand; what it does not support is not the matter.
pub(super) fn says(start: &str, (heads, faults): Pair) -> bool {
    let start = start.replacen("api key", "apikey", 1);
    let (mut head, mut fault, mut rest) = (false, false, start.as_str());
    for _ in 0..WORDS {
        rest = rest.trim_start();
        if let Some(after) = strip(rest, faults) {
            if rest.starts_with("不支持") && head {
                return false;
            }
            (fault, rest) = (true, after);
        } else if let Some(after) = strip(rest, heads) {
            (head, rest) = (true, after);
            if heads == "模型" {
                rest = rest
                    .trim_start()
                    .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c));
            }
        } else if let Some(after) = strip(rest, BETWEEN) {
            rest = after;
        } else {
            return false;
        }
        if head && fault {
            return true;
        }
    }
    false
}

fn strip<'a>(text: &'a str, list: &str) -> Option<&'a str> {
    list.split(' ').find_map(|piece| text.strip_prefix(piece))
}
