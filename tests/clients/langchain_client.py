"""What LangChain's OpenAI client gets through a proxy. Prints one JSON document.

    langchain_client.py BASE_URL MODEL EMBEDDING_MODEL SILENT_MODEL
"""

import json
import sys
import time

import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

base_url, model, embedding_model, silent_model = sys.argv[1:]


def chat(name, **more):
    return ChatOpenAI(base_url=base_url, api_key="the-callers-own", model=name, max_retries=0, **{"timeout": 30, **more})


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return city


got = {"plain": chat(model).invoke("Say hello").content}
got["stream"] = "".join(chunk.content for chunk in chat(model).stream("Say hello"))
call = chat(model).bind_tools([weather]).invoke("What is the weather?").tool_calls[0]
got["tool"] = [call["name"], call["args"]]
embeddings = OpenAIEmbeddings(base_url=base_url, api_key="the-callers-own", model=embedding_model, check_embedding_ctx_length=False)
got["embedding"] = embeddings.embed_query("a")


def error(call):
    try:
        call()
        return None
    except openai.APIStatusError as e:
        return [type(e).__name__, e.status_code, e.code]
    except openai.APIError as e:
        return [type(e).__name__]


got["unknown_model"] = error(lambda: chat("no-such-model").invoke("hi"))
stream = chat(model).stream("Say hello")
next(stream)
stream.close()
got["early_close"] = True
start = time.monotonic()
got["timeout"] = error(lambda: chat(silent_model, timeout=0.5).invoke("hi"))
got["timeout_prompt"] = time.monotonic() - start < 5
print(json.dumps(got))
