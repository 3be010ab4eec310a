"""What the OpenAI SDK makes of a stream that breaks after its first content: the text so far and an error, never an end.

    openai_cut.py BASE_URL MODEL
"""

import json
import sys

import openai

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="the-callers-own", max_retries=0, timeout=30)
text, error, finish = "", None, None
try:
    for chunk in client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], stream=True):
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
except openai.APIError as e:
    error = [type(e).__name__, e.code]
print(json.dumps({"text": text, "error": error, "finish": finish}))
