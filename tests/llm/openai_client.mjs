// SPDX-License-Identifier: Apache-2.0
// The real `openai` client against llm_server, run by hand:
//   npm install openai && llm_server --port 8000 & node tests/llm/openai_client.mjs http://localhost:8000/v1
import assert from "node:assert";
import OpenAI from "openai";

const baseURL = process.argv[2] ?? "http://localhost:8000/v1";
const client = new OpenAI({ baseURL, apiKey: process.argv[3] ?? "none", maxRetries: 0 });

const models = await client.models.list();
const model = models.data[0].id;
assert.equal((await client.models.retrieve(model)).id, model);
console.log("models:", model);

const completion = await client.completions.create({
  model, prompt: "Hello", max_tokens: 16, seed: 1, n: 2, logprobs: 3,
});
assert.equal(completion.choices.length, 2);
assert.equal(completion.usage.completion_tokens, 32);
assert.equal(completion.choices[0].logprobs.tokens.length, 16);
console.log("completion:", completion.usage);

const messages = [{ role: "user", content: "Hello" }];
const chat = await client.chat.completions.create({ model, messages, max_tokens: 24, seed: 1 });
assert.equal(chat.choices[0].message.role, "assistant");
console.log("chat:", chat.usage);

let text = "";
let usage = null;
const stream = await client.chat.completions.create({
  model, messages, max_tokens: 24, seed: 1, stream: true, stream_options: { include_usage: true },
});
for await (const part of stream) {
  text += part.choices[0]?.delta?.content ?? "";
  usage = part.usage ?? usage;
}
assert.equal(text, chat.choices[0].message.content);
assert.deepEqual(usage, chat.usage);
console.log("stream: the same text and usage");

const stop = text.match(/[\x20-\x7e]{1,2}/)[0];  // The text of random weights is not all UTF-8.
const stopped = await client.chat.completions.create({
  model, messages, max_tokens: 24, seed: 1, stop,
});
assert.equal(stopped.choices[0].finish_reason, "stop");
assert.equal(stopped.choices[0].message.content, text.slice(0, text.indexOf(stop)));
console.log("stop: before", JSON.stringify(stop));

const controller = new AbortController();
const endless = await client.completions.create(
  { model, prompt: "x", max_tokens: 1500, stream: true, ignore_eos: true },
  { signal: controller.signal });
let parts = 0;
for await (const part of endless) {
  assert.equal(part.object, "text_completion");
  if (++parts === 5) controller.abort();
}
assert(parts < 1500);
console.log("abort: after", parts, "parts");

const fails = async (kind, status, code, work) => {
  await assert.rejects(work, (e) => {
    assert(e instanceof kind, `${e}`);
    assert.equal(e.status, status);
    assert.equal(e.code, code);
    return true;
  });
  console.log("error:", kind.name, status, code);
};
await fails(OpenAI.NotFoundError, 404, "model_not_found",
  () => client.chat.completions.create({ model: "none", messages }));
await fails(OpenAI.BadRequestError, 400, null,
  () => client.chat.completions.create({ model, messages, temperature: 9 }));
await fails(OpenAI.BadRequestError, 400, "context_length_exceeded",
  () => client.completions.create({ model, prompt: "x".repeat(100000) }));
console.log("all passed");
