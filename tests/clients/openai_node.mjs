// What an application gets from the OpenAI SDK for Node through a proxy. Prints one JSON document.
//
//     openai_node.mjs BASE_URL MODEL EMBEDDING_MODEL SILENT_MODEL

import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.SPARELINE_NODE_MODULES, "anything.js"));
const { default: OpenAI } = require("openai");
const [baseURL, model, embeddingModel, silentModel] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "the-callers-own", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "Say hello" }];
const parameters = { type: "object", properties: { city: { type: "string" } } };
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const got = {};

got.plain = (await client.chat.completions.create({ model, messages })).choices[0].message.content;
got.stream = "";
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
  got.stream += chunk.choices[0].delta.content ?? "";
}
const call = (await client.chat.completions.create({ model, messages, tools })).choices[0].message.tool_calls[0];
got.tool = [call.function.name, JSON.parse(call.function.arguments)];
got.embedding = (await client.embeddings.create({ model: embeddingModel, input: ["a", "b"] })).data[1].embedding;
got.response = (await client.responses.create({ model, input: "Say hello" })).output_text;

async function error(call) {
  try {
    await call();
    return null;
  } catch (e) {
    return e.status ? [e.constructor.name, e.status, e.code] : [e.constructor.name];
  }
}
got.unknown_model = await error(() => client.chat.completions.create({ model: "no-such-model", messages }));
const stream = await client.chat.completions.create({ model, messages, stream: true });
for await (const _ of stream) break;
stream.controller.abort();
got.early_close = true;
const start = Date.now();
got.timeout = await error(() => client.chat.completions.create({ model: silentModel, messages }, { timeout: 500 }));
got.timeout_prompt = Date.now() - start < 5000;
console.log(JSON.stringify(got));
