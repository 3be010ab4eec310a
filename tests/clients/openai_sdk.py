"""What an application gets from the OpenAI SDK through a proxy. Prints one JSON document.

    openai_sdk.py BASE_URL MODEL EMBEDDING_MODEL SILENT_MODEL
"""

import json
import sys
import time

import openai

base_url, model, embedding_model, silent_model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="the-callers-own", max_retries=0, timeout=30)
messages = [{"role": "user", "content": "Say hello"}]
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
got = {}

plain = client.chat.completions.create(model=model, messages=messages)
got["plain"] = plain.choices[0].message.content
got["usage"] = plain.usage.total_tokens

chunks = list(client.chat.completions.create(model=model, messages=messages, stream=True, stream_options={"include_usage": True}))
got["stream"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
got["stream_finish"] = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
got["stream_usage"] = chunks[-1].usage.total_tokens

call = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message.tool_calls[0]
got["tool"] = [call.function.name, json.loads(call.function.arguments)]
arguments = ""
for chunk in client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True):
    for part in chunk.choices[0].delta.tool_calls or []:
        arguments += part.function.arguments or ""
got["stream_tool"] = json.loads(arguments)

got["completion"] = client.completions.create(model=model, prompt="Say hello").choices[0].text
got["embedding"] = client.embeddings.create(model=embedding_model, input=["a", "b"]).data[1].embedding
got["response"] = client.responses.create(model=model, input="Say hello").output_text
events = list(client.responses.create(model=model, input="Say hello", stream=True))
got["response_stream"] = "".join(e.delta for e in events if e.type == "response.output_text.delta")
got["response_end"] = events[-1].type
got["models"] = [m.id for m in client.models.list().data]
got["model"] = client.models.retrieve(model).id


def error(call):
    try:
        call()
        return None
    except openai.APIStatusError as e:
        return [type(e).__name__, e.status_code, e.code]
    except openai.APIError as e:
        return [type(e).__name__]


got["unknown_model"] = error(lambda: client.chat.completions.create(model="no-such-model", messages=messages))
got["missing_messages"] = error(lambda: client.post("/chat/completions", body={"messages": []}, cast_to=object))

stream = client.chat.completions.create(model=model, messages=messages, stream=True)
next(iter(stream))
stream.close()
got["early_close"] = True

start = time.monotonic()
impatient = client.with_options(timeout=0.5)
got["timeout"] = error(lambda: impatient.chat.completions.create(model=silent_model, messages=messages))
got["timeout_prompt"] = time.monotonic() - start < 5

print(json.dumps(got))
