use super::*;

#[test]
fn an_error_by_structure_only() {
    for (body, error) in [
        (r#"{"error":{"message":"x"}}"#, true),
        (r#"{"error":"x"}"#, true),
        (r#"{"error":null,"choices":[{}]}"#, false),
        (r#"{"error":{}}"#, false),
        (r#"{"error":{  }}"#, false),
        (r#"{"error":""}"#, false),
        (r#"{"error":false}"#, false),
        (r#"{"error":[]}"#, false),
        (r#"{"object":"error","message":"x"}"#, true),
        (r#"{"type":"error","error":{"type":"x"}}"#, true),
        (r#"{"type":"response.failed","response":{"output":[{"text":"x"}]}}"#, true),
        (r#"{"type":"response.completed","response":{"error":{"code":"x"}}}"#, false),
        (r#"{"base_resp":{"status_code":1008}}"#, true),
        (r#"{"base_resp":{"status_code":0,"status_msg":"success"}}"#, false),
        (r#"{"error_code":17}"#, true),
        (r#"{"error_code":0}"#, false),
        (r#"{"error_code":"0"}"#, false),
        (r#"{"header":{"code":11200}}"#, true),
        (r#"{"header":{"code":0,"status":2}}"#, false),
        (r#"{"Response":{"Error":{"Code":"x"}}}"#, true),
        (r#"{"Response":{"RequestId":"x"}}"#, false),
        (r#"{"success":false,"errors":[{"code":1}]}"#, true),
        (r#"{"success":false,"errors":[]}"#, false),
        (r#"{"success":true,"errors":[]}"#, false),
        (r#"{"success":false,"msg":"no"}"#, true),
        (r#"[{"error":{"code":429}}]"#, true),
        (r#"{"code":"invalid_api_key","message":"x"}"#, false),
    ] {
        assert_eq!(outline(body.as_bytes()).error, error, "{body}");
    }
}

#[test]
fn content_beside_it_speaks_against_an_error() {
    for (body, error) in [
        (r#"{"error":{"code":502},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#, true),
        (r#"{"error":{"code":502},"choices":null}"#, true),
        (r#"{"error":"x","choices":[{"message":{"content":"Hello"}}]}"#, false),
        (r#"{"error":"x","choices":[{"message":{"tool_calls":[{"function":{"name":"f"}}]}}]}"#, false),
        (r#"{"error":"x","content":[{"type":"text","text":"Hi"}]}"#, false),
        (r#"{"error":"x","data":[{"embedding":[0.1]}]}"#, false),
        (r#"{"error":"x","data":null}"#, true),
    ] {
        assert_eq!(outline(body.as_bytes()).error, error, "{body}");
    }
}

#[test]
fn wholeness_and_choices() {
    let read = |body: &str| {
        let outline = outline(body.as_bytes());
        (outline.whole, outline.no_choices)
    };
    assert_eq!(read(r#"{"choices":[]}"#), (true, true));
    assert_eq!(read(r#"{"choices": null }"#), (true, true));
    assert_eq!(read(r#"{"choices":[{}]} "#), (true, false));
    assert_eq!(read(r#"{"choices":[{"#), (false, false));
}

#[test]
fn a_remark_in_place_of_an_answer() {
    for (body, remark, failure) in [
        (r#"{"message":"Unauthorized"}"#, true, false),
        (r#"{"detail":"Not Found"}"#, true, false),
        (r#"{"code":"InvalidApiKey","message":"no","request_id":"r"}"#, true, true),
        (r#"{"code":-1,"msg":"busy","data":null}"#, true, true),
        (r#"{"error":true,"message":"no"}"#, true, true),
        (r#"{"statusCode":429,"message":"no"}"#, true, true),
        (r#"{"status":"error","message":"no"}"#, true, true),
        (r#"{"success":false,"detail":"no"}"#, true, true),
        (r#"{"status":200,"message":"ok"}"#, true, false),
        (r#"{"code":"Success","message":"ok"}"#, true, false),
        (r#"{"code":1,"message":""}"#, false, false),
        (r#"{"input_tokens":3}"#, false, false),
        (r#"{"code":1,"message":"x","choices":[{}]}"#, false, false),
        (r#"{"code":1,"message":"x","data":{"choices":[{}]}}"#, false, false),
        (r#"{"code":1,"message":{"content":"x"}}"#, false, false),
        (r#"{"type":"x","code":"print(1)","message":"x"}"#, false, false),
        (r#"{"id":"x","code":1,"message":"x"}"#, false, false),
        (r#"[{"code":1,"message":"x"}]"#, false, false),
    ] {
        let outline = outline(body.as_bytes());
        assert_eq!((outline.remark, outline.failure), (remark, failure), "{body}");
    }
}
