// SPDX-License-Identifier: Apache-2.0
// The real `openai` client against llm_server; with a key it also tries wrong ones. The test
// `chat.openai_client_test` runs it. By hand, copied to a folder where `npm install openai` was run:
//   llm_server --port 8000 --api-key secret --slots 2 --max-waiting 2 &
//   node openai_client.mjs http://localhost:8000/v1 secret
import assert from "node:assert";
import OpenAI from "openai";

const baseURL = process.argv[2] ?? "http://localhost:8000/v1";
const key = process.argv[3];
const client = new OpenAI({ baseURL, apiKey: key ?? "none", maxRetries: 0 });

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

const most = await client.chat.completions.create({
  model, messages, max_completion_tokens: 5, ignore_eos: true, seed: 1, logprobs: true, top_logprobs: 3,
});
const scored = most.choices[0].logprobs.content;
assert.equal(most.usage.completion_tokens, 5);
assert.equal(most.choices[0].finish_reason, "length");
assert.equal(scored.length, 5);
for (const token of scored) {
  assert(token.logprob <= 0);
  assert.equal(token.top_logprobs.length, 3);
  assert(token.top_logprobs[0].logprob >= token.top_logprobs[2].logprob);
}
console.log("max_completion_tokens, logprobs:", scored.map((t) => t.logprob.toFixed(2)).join(" "));

const first = await client.chat.completions.create({
  model, messages, max_tokens: 24, seed: 1, priority: -100,
});
assert.equal(first.choices[0].message.content, chat.choices[0].message.content);
console.log("priority: the same text");

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

const byte = stop.charCodeAt(0);  // A byte is its own token.
if (model.startsWith("random-")) {
  const ended = await client.chat.completions.create({
    model, messages, max_tokens: 24, seed: 1, stop_token_ids: [byte],
  });
  assert.equal(ended.choices[0].finish_reason, "stop");
  assert.equal(ended.choices[0].message.content, text.slice(0, text.indexOf(stop[0])));
  console.log("stop_token_ids: before", byte);
}

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
await fails(OpenAI.BadRequestError, 400, null,
  () => client.chat.completions.create({ model, messages, priority: 1000 }));
await fails(OpenAI.BadRequestError, 400, null,
  () => client.chat.completions.create({ model, messages, tool_choice: "required" }));
if (key !== undefined) {
  const stranger = new OpenAI({ baseURL, apiKey: "not-" + key, maxRetries: 0 });
  await fails(OpenAI.AuthenticationError, 401, "invalid_api_key", () => stranger.models.list());
}

// More texts at once than there are places (264 by default).
const held = [];
const refusal = await new Promise((resolve) => {
  for (let i = 0; i < 300; ++i) {
    held.push(new AbortController());
    client.completions.create(
      { model, prompt: "x", max_tokens: 1500, stream: true, ignore_eos: true },
      { signal: held[i].signal }).catch(resolve);
  }
});
for (const one of held) one.abort();
assert(refusal instanceof OpenAI.RateLimitError, `${refusal}`);
assert.equal(refusal.status, 429);
assert.equal(refusal.code, "queue_full");
const wait = new Headers(refusal.headers).get("retry-after");  // Of what type they are varies.
assert(Number(wait) >= 1);
console.log("error:", refusal.constructor.name, "Retry-After", wait);
console.log("all passed");
