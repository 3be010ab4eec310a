//! Numeric codes: each means something only in the place where its provider puts it.

use super::{Find, Rule, dead, rule};
use crate::classify::facts::Place;
use crate::words::{Cause, Class};

const ZHIPU: &[&str] = &["zhipu"];
const XFYUN: &[&str] = &["xfyun"];

pub(super) static RULES: &[Rule] = &[
    // Zhipu, Z.ai: `error.code`, on its Anthropic endpoint `error.type`.
    dead(
        "number.zhipu.key",
        Cause::Credential,
        Find::Numbers(
            Place::Error,
            &["1000", "1001", "1002", "1003", "1004", "1110", "1111", "1112", "1121"],
        ),
    )
    .of(ZHIPU),
    dead("number.zhipu.balance", Cause::Quota, Find::Numbers(Place::Error, &["1113", "1309"])).of(ZHIPU),
    rule(
        "number.zhipu.model",
        Find::Numbers(Place::Error, &["1211", "1220", "1311"]),
        Class::ModelUnavailable,
    )
    .of(ZHIPU),
    rule(
        "number.zhipu.request",
        Find::Numbers(
            Place::Error,
            &["1210", "1212", "1213", "1214", "1215", "1231", "1232", "1233", "1261", "1300", "1301"],
        ),
        Class::Transparent,
    )
    .of(ZHIPU),
    rule(
        "number.zhipu.fault",
        Find::Numbers(Place::Error, &["1120", "1200", "1230", "1234"]),
        Class::Retryable,
    )
    .of(ZHIPU),
    rule(
        "number.zhipu.rate",
        Find::Numbers(Place::Error, &["1302", "1303", "1304", "1305", "1308", "1310", "1312", "1313"]),
        Class::Throttle,
    )
    .of(ZHIPU),
    // MiniMax: `base_resp.status_code`, or in parentheses at the end of the message.
    dead("number.minimax.key", Cause::Credential, Find::Numbers(Place::BaseResp, &["1004", "2049"])),
    dead("number.minimax.balance", Cause::Quota, Find::Numbers(Place::BaseResp, &["1008"])),
    rule("number.minimax.model", Find::Numbers(Place::BaseResp, &["2061"]), Class::ModelUnavailable),
    rule(
        "number.minimax.request",
        Find::Numbers(
            Place::BaseResp,
            &["1026", "1027", "1039", "1042", "2013", "2037", "2039", "2042", "2048", "20132"],
        ),
        Class::Transparent,
    ),
    rule(
        "number.minimax.fault",
        Find::Numbers(Place::BaseResp, &["1000", "1001", "1013", "1024", "1033"]),
        Class::Retryable,
    ),
    rule(
        "number.minimax.rate",
        Find::Numbers(Place::BaseResp, &["1002", "1041", "2045", "2056", "2062"]),
        Class::Throttle,
    ),
    // Baidu: `error_code`.
    dead(
        "number.baidu.key",
        Cause::Credential,
        Find::Numbers(Place::ErrorCode, &["13", "14", "15", "110", "111"]),
    ),
    dead("number.baidu.balance", Cause::Quota, Find::Numbers(Place::ErrorCode, &["17", "19"])),
    rule("number.baidu.model", Find::Numbers(Place::ErrorCode, &["6"]), Class::ModelUnavailable),
    rule(
        "number.baidu.request",
        Find::Numbers(
            Place::ErrorCode,
            &[
                "100", "336001", "336002", "336003", "336006", "336007", "336008", "336101", "336102",
                "336103", "336104", "336105", "336106", "336107", "336117", "336122", "336123", "336221",
            ],
        ),
        Class::Transparent,
    ),
    rule(
        "number.baidu.fault",
        Find::Numbers(Place::ErrorCode, &["1", "2", "336000", "336005", "336100", "336200"]),
        Class::Retryable,
    ),
    rule(
        "number.baidu.rate",
        Find::Numbers(Place::ErrorCode, &["4", "18", "336501", "336502", "336503", "336504"]),
        Class::Throttle,
    ),
    // iFlytek Spark: `header.code`; on its compatible endpoint `error.code` or a bare `code`.
    dead("number.xfyun.key", Cause::Credential, Find::Numbers(Place::Header, &["10005", "10016", "10313"])),
    dead("number.xfyun.balance", Cause::Quota, Find::Numbers(Place::Header, &["11200"])),
    rule(
        "number.xfyun.request",
        Find::Numbers(Place::Header, &["10003", "10004", "10013", "10014", "10019", "10163", "10907"]),
        Class::Transparent,
    ),
    rule(
        "number.xfyun.fault",
        Find::Numbers(
            Place::Header,
            &["10008", "10009", "10010", "10011", "10012", "10015", "10018", "10110", "10222"],
        ),
        Class::Retryable,
    ),
    rule(
        "number.xfyun.rate",
        Find::Numbers(Place::Header, &["10006", "10007", "11201", "11202", "11203"]),
        Class::Throttle,
    ),
    dead(
        "number.xfyun.compat_key",
        Cause::Credential,
        Find::Numbers(Place::Error, &["10005", "10016", "10313"]),
    )
    .of(XFYUN),
    dead("number.xfyun.compat_balance", Cause::Quota, Find::Numbers(Place::Error, &["11200"])).of(XFYUN),
    rule(
        "number.xfyun.compat_request",
        Find::Numbers(Place::Error, &["10013", "10014", "10019", "10163", "10907"]),
        Class::Transparent,
    )
    .of(XFYUN),
    rule(
        "number.xfyun.compat_rate",
        Find::Numbers(Place::Error, &["11201", "11202", "11203"]),
        Class::Throttle,
    )
    .of(XFYUN),
    // SiliconFlow: a bare `code` beside `message` and `data`.
    dead("number.siliconflow.balance", Cause::Quota, Find::Numbers(Place::Top, &["30001"]))
        .of(&["siliconflow"]),
    rule("number.siliconflow.model", Find::Numbers(Place::Top, &["20012", "30003"]), Class::ModelUnavailable)
        .of(&["siliconflow"]),
    rule("number.siliconflow.request", Find::Numbers(Place::Top, &["20015"]), Class::Transparent)
        .of(&["siliconflow"]),
    rule(
        "number.siliconflow.fault",
        Find::Numbers(Place::Top, &["50501", "50502", "50503", "50504", "50505", "50507", "50508", "60000"]),
        Class::Retryable,
    )
    .of(&["siliconflow"]),
    // Mistral: a bare `code` beside `object: error`.
    rule("number.mistral.model", Find::Numbers(Place::Top, &["1500"]), Class::ModelUnavailable)
        .of(&["mistral"]),
    rule("number.mistral.rate", Find::Numbers(Place::Top, &["1300"]), Class::Throttle).of(&["mistral"]),
    // Cloudflare: `errors[].code`.
    dead(
        "number.cloudflare.key",
        Cause::Credential,
        Find::Numbers(Place::Errors, &["10000", "9106", "9109", "6003"]),
    ),
    dead("number.cloudflare.balance", Cause::Quota, Find::Numbers(Place::Errors, &["3036", "4006"])),
    rule(
        "number.cloudflare.model",
        Find::Numbers(Place::Errors, &["5007", "5016", "5018", "3042"]),
        Class::ModelUnavailable,
    ),
    rule(
        "number.cloudflare.request",
        Find::Numbers(Place::Errors, &["5004", "5005", "5006", "3003", "3006", "2016", "2017"]),
        Class::Transparent,
    ),
    rule(
        "number.cloudflare.fault",
        Find::Numbers(Place::Errors, &["3007", "3008", "3040", "3043"]),
        Class::Retryable,
    ),
    rule("number.cloudflare.rate", Find::Numbers(Place::Errors, &["971"]), Class::Throttle),
];
