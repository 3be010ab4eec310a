"""What an application gets from the Anthropic SDK through a proxy. Prints one JSON document.

    anthropic_sdk.py BASE_URL MODEL SILENT_MODEL
"""

import json
import sys
import time

import anthropic

base_url, model, silent_model = sys.argv[1:]
client = anthropic.Anthropic(base_url=base_url, api_key="the-callers-own", max_retries=0, timeout=30)
ask = {"max_tokens": 100, "messages": [{"role": "user", "content": "Say hello"}]}
tools = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
got = {}

plain = client.messages.create(model=model, **ask)
got["plain"] = plain.content[0].text
got["usage"] = [plain.usage.input_tokens, plain.usage.output_tokens]
with client.messages.stream(model=model, **ask) as stream:
    got["stream"] = "".join(stream.text_stream)
    got["stream_stop"] = stream.get_final_message().stop_reason
block = client.messages.create(model=model, tools=tools, **ask).content[0]
got["tool"] = [block.name, block.input]
with client.messages.stream(model=model, tools=tools, **ask) as stream:
    got["stream_tool"] = stream.get_final_message().content[0].input


def error(call):
    try:
        call()
        return None
    except anthropic.APIStatusError as e:
        return [type(e).__name__, e.status_code, e.body["type"], e.body["error"]["type"]]
    except anthropic.APIError as e:
        return [type(e).__name__]


got["unknown_model"] = error(lambda: client.messages.create(model="no-such-model", **ask))
with client.messages.stream(model=model, **ask) as stream:
    next(iter(stream))
got["early_close"] = True
start = time.monotonic()
got["timeout"] = error(lambda: client.with_options(timeout=0.5).messages.create(model=silent_model, **ask))
got["timeout_prompt"] = time.monotonic() - start < 5

print(json.dumps(got))
