// SPDX-License-Identifier: Apache-2.0
#include "chat_app.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <optional>
#include <random>
#include <serve/barrier.hpp>
#include <thread>
#include <utility>
#include <variant>

namespace cohort::chat {
namespace {

std::uint64_t draw_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void fail(serve::http_client& to, const api_error& e, serve::http_fields fields = {}) {
  to.answer({.status = e.status, .body = write_error(e), .fields = std::move(fields)});
}

const char* said_of(device_trouble t) {
  return t == device_trouble::fails ? "the device fails" : "the device hangs";
}
api_error no_device(device_trouble t) {
  return error_of(503, t == device_trouble::fails ? "The device fails: try later"
                                                  : "The device hangs: try later");
}

/// The most memory that the values of a JSON text take while it is parsed: each takes up to 48
/// bytes in a list that grows, and 64 more if it is an empty object.
std::size_t bytes_to_parse(std::string_view json) {
  const auto values = std::ranges::count_if(
      json, [](char c) { return c == ',' || c == ':' || c == '[' || c == '{'; });
  return 2 * json.size() + 112 * static_cast<std::size_t>(values);
}

}  // namespace

struct chat_app::client_job : job {
  /// Null when it was answered or has gone, once its body was read: a connection closes when nobody
  /// has it any more, and texts may end later.
  std::shared_ptr<serve::http_client> client;
  answer_head head;
  std::vector<answer_text> texts;  // Of a stream: unused.
  std::vector<bool> began;         // The role was sent.
  token_usage usage;
  std::size_t left = 0;
  bool streams = false;
  bool has_begun = false;
  bool is_submitted = false;
  std::atomic<bool> is_lost{false};  // For the reader: nobody is there any more.
  std::optional<api_error> mistake;  // That it found.
  bool lacks_memory = false;         // Which is the mistake.
};

chat_app::chat_app(serve::http_server& http, chat_metrics& counters, const serve::key_ring* keys,
                   bool has_management)
    : http_{http},
      counters_{counters},
      keys_{keys},
      has_management_{has_management},
      seeds_{draw_seed()} {}

void chat_app::start(const served_model& model, text_service& s, std::uint32_t slots) {
  model_ = model;
  service_ = &s;
  slots_ = slots;
  is_started_ = true;
}

void chat_app::end() {
  reader_.stop();
  reader_.join();
}

std::string chat_app::error_body(int status, std::string_view message) {
  return write_error(error_of(status, std::string{message}));
}

void chat_app::answered(int status) { counters_.answered(status); }
void chat_app::refused(serve::http_bound full) { counters_.refused(full); }

bool chat_app::is_probe(std::string_view path) const {
  return !has_management_ && serve::page_at(path) != serve::managed_page::none;
}

namespace {
serve::http_reply state(const char* why_not) {
  if (why_not == nullptr) return {.body = R"({"status":"ok"})"};
  return {.status = 503, .body = fmt::format(R"({{"status":"{}"}})", why_not)};
}
}  // namespace

serve::http_reply chat_app::live() {
  return state(is_started_ && service_->is_broken() ? "broken" : nullptr);
}
serve::http_reply chat_app::ready() {
  if (!is_started_) return state("starting");
  if (service_->is_broken()) return state("broken");
  if (const auto t = service_->trouble(); t != device_trouble::none) return state(said_of(t));
  return state(http_.is_leaving() ? "draining" : nullptr);
}
serve::http_reply chat_app::metrics() {
  counters_.http.show(http_);
  return {.body = counters_.text(), .type = "text/plain; version=0.0.4", .may_be_compressed = true};
}

std::optional<serve::http_reply> chat_app::early_answer(const serve::http_request& head) {
  const bool is_open = head.path == "/health" || head.path == "/ready" ||
                       (head.path == "/metrics" && !has_management_);
  if (head.is_on_management_port || is_open || keys_ == nullptr || keys_->is_empty() ||
      keys_->admits(head.authorization)) {
    return std::nullopt;
  }
  return serve::http_reply{
      .status = 401,
      .body = write_error({.status = 401,
                           .message = head.authorization.empty()
                                          ? "No API key: expected Authorization: Bearer KEY"
                                          : "The API key is not valid",
                           .code = "invalid_api_key"}),
      .fields = {{"WWW-Authenticate", "Bearer"}}};
}

/// One place in the queue frees in about this many seconds.
unsigned chat_app::retry_after() const {
  return static_cast<unsigned>(std::clamp(std::ceil(mean_seconds_ / slots_), 1.0, 60.0));
}

void chat_app::asked(const serve::http_request& request,
                     const std::shared_ptr<serve::http_client>& client) {
  const std::string_view path = request.path;
  const auto only = [&](bool allowed, const char* method) {
    if (!allowed) {
      fail(*client, error_of(405, fmt::format("{} allows only {}", path, method)),
           {{"Allow", method}});
    }
    return allowed;
  };
  const bool has_metrics = !has_management_;
  if (path == "/health" || path == "/ready" || (path == "/metrics" && has_metrics)) {
    if (!only(request.reads(), "GET")) return;
    return client->answer(path == "/health" ? live() : path == "/ready" ? ready() : metrics());
  }
  if (!is_started_) {
    return fail(*client, error_of(503, "The server is starting"), {{"Retry-After", "1"}});
  }
  constexpr std::string_view one_model = "/v1/models/";
  if (path == "/v1/models") {
    if (only(request.reads(), "GET")) client->answer({.body = write_models(model_)});
  } else if (path.starts_with(one_model)) {
    if (!only(request.reads(), "GET")) return;
    if (path.substr(one_model.size()) == model_.name) {
      client->answer({.body = write_model(model_)});
    } else {
      fail(*client,
           {.status = 404,
            .message = fmt::format("The model '{}' does not exist", path.substr(one_model.size())),
            .param = "model",
            .code = "model_not_found"});
    }
  } else if (path == "/v1/completions" || path == "/v1/chat/completions") {
    if (only(request.method == "POST", "POST")) {
      generate(request.body, path == "/v1/chat/completions", client);
    }
  } else {
    fail(*client, error_of(404, fmt::format("{} is unknown", path)));
  }
}

/// Whoever comes while nothing can be generated is told so, rather than to wait for nobody knows
/// how long. @returns Whether that is so.
bool chat_app::refuse_without_device(serve::http_client& client) const {
  if (service_->is_broken()) {
    fail(client, error_of(503, "The generator has failed"));
  } else if (const auto t = service_->trouble(); t != device_trouble::none) {
    fail(client, no_device(t), {{"Retry-After", std::to_string(retry_after())}});
  } else {
    return false;
  }
  counters_.refused(chat_refusal::no_device);
  return true;
}

void chat_app::refuse(serve::http_client& client, std::size_t texts) {
  counters_.refused(chat_refusal::queue_full);
  fail(client, error_of(429, fmt::format("No room for {} more sequences: try later", texts)),
       {{"Retry-After", std::to_string(retry_after())}});
}

void chat_app::generate(std::string_view body, bool is_chat,
                        const std::shared_ptr<serve::http_client>& client) {
  if (refuse_without_device(*client)) return;
  // Each of those that are being read is a text at least. So no more wait for the reader than for
  // a slot, whatever their clients send.
  if (service_->open() + reading_ >= service_->capacity()) return refuse(*client, 1);
  const auto j = std::make_shared<client_job>();
  j->client = client;
  j->arrival = clock_.now();
  j->head.id = fmt::format("{}-{:016x}", is_chat ? "chatcmpl" : "cmpl", ++seeds_);
  j->head.created = unix_seconds();
  j->head.is_chat = is_chat;
  client->on_gone([this, j] {
    j->is_lost = true;
    if (!j->is_submitted) return;  // The reader has the body, which is the client's.
    j->client.reset();
    service_->cancel(j);
  });
  // The body is the client's, which the job keeps.
  boost::asio::post(reader_, [this, j, body] {
    try {
      if (!j->is_lost) read(*j, body);
    } catch (...) {
      serve::log_fault("llm_server", "a request cannot be read");
      j->mistake = api_error{.status = 503, .message = {}, .type = {}};  // Without memory for more.
      serve::guarded("llm_server", "a request cannot be read", [&] {
        const serve::fault f = serve::current_fault();
        j->mistake = error_of(f.status, f.message);
      });
    }
    const auto go_on = [&] {
      http_.post([this, j] {
        try {
          begin(j);
        } catch (...) {
          lose(*j);
        }
      });
    };
    // Without memory for that its client would wait for ever, and its place be taken. There is no
    // other way to the thread of both, so it is tried again, until the server ends.
    while (!serve::guarded("llm_server", "what was read waits", go_on) && !http_.is_draining()) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  });
  ++reading_;  // If that failed nobody would count it down.
}

/// On the reader's thread: makes the job's texts, or says what is wrong.
void chat_app::read(client_job& j, std::string_view body) const {
  serve::held_bytes values{http_.memory()};
  if (const std::size_t needed = bytes_to_parse(body); !values.resize(needed)) {
    const auto [status, why] = http_.why_no_memory(needed);
    j.mistake = error_of(status, why);
    j.lacks_memory = true;
    return;
  }
  std::variant<text_request, api_error> result;
  try {
    result = read_request(body, j.head.is_chat, model_);
  } catch (const std::exception& e) {
    result = error_of(500, fmt::format("The request could not be read: {}", e.what()));
  }
  if (auto* e = std::get_if<api_error>(&result)) {
    j.mistake = std::move(*e);
    return;
  }
  auto& asked = std::get<text_request>(result);
  j.streams = asked.streams;
  j.head.shows_tokens = asked.shows_tokens;
  j.head.includes_usage = asked.includes_usage;
  const std::uint64_t seed = asked.has_seed ? asked.how.seed : draw_seed();
  for (const auto& prompt : asked.prompts) {
    j.usage.prompt += prompt.size();
    for (std::uint32_t i = 0; i < asked.n; ++i) {
      choice& c = j.choices.emplace_back();
      c.index = static_cast<std::uint32_t>(j.choices.size() - 1);
      c.text = prompt;
      c.max_new = asked.max_new;
      c.priority = asked.priority;
      c.how = asked.how;
      c.how.seed = seed + c.index;
      c.stops = llama::stop_matcher{asked.stops};
      c.shows_tokens = asked.shows_tokens;
      c.stop_tokens = asked.stop_tokens;
      const auto add = [&](const std::vector<kv::token_id>& more) {
        c.stop_tokens.insert(c.stop_tokens.end(), more.begin(), more.end());
      };
      if (!asked.ignores_end) {
        add(model_.end_tokens);
        if (j.head.is_chat) add(model_.chat->stop_tokens());
      }
    }
  }
  j.left = j.choices.size();
  j.texts.resize(j.left);
  j.began.resize(j.left);
}

/// What was read goes to the service, if its client is still there.
void chat_app::begin(const std::shared_ptr<client_job>& j) {
  --reading_;
  if (j->is_lost) return j->client.reset();
  if (j->mistake) {
    serve::http_fields fields;
    if (j->lacks_memory) counters_.refused(serve::http_bound::memory);
    if (j->mistake->status == 429) fields.emplace_back("Retry-After", "1");
    return fail(*j->client, *j->mistake, std::move(fields));
  }
  if (refuse_without_device(*j->client)) return;
  if (!service_->submit(j)) {
    if (!refuse_without_device(*j->client)) refuse(*j->client, j->choices.size());
    return;
  }
  j->is_submitted = true;
}

void chat_app::said(std::vector<piece> pieces) {
  http_.post([this, all = std::move(pieces)]() mutable {
    for (piece& p : all) {
      try {
        deliver(p);
      } catch (...) {
        lose(static_cast<client_job&>(*p.of));
        serve::guarded("llm_server", "sequences without a client go on",
                       [&] { service_->cancel(p.of); });
      }
    }
  });
}

/// Ends an answer, by what the exception that is being handled says. Only within a catch block.
void chat_app::lose(client_job& j) {
  serve::log_fault("llm_server", "a request failed");
  const auto client = std::exchange(j.client, nullptr);
  if (!client) return;
  if (j.has_begun) return client->end();
  const bool is_said = serve::guarded("llm_server", "a request failed", [&] {
    const serve::fault f = serve::current_fault();
    fail(*client, error_of(f.status, f.message));
  });
  // Without memory for words: the status alone, and if that fails, too, the connection closes.
  if (!is_said) client->answer({.status = 503, .type = "text/plain"});
}

void chat_app::deliver(piece& p) {
  auto& j = static_cast<client_job&>(*p.of);
  if (p.finished) {
    --j.left;
    j.usage.completion += p.produced;
    if (p.finished != kv::finish_reason::rejected && p.trouble == device_trouble::none) {
      constexpr double weight = 0.1;
      const double seconds = to_seconds(clock_.now() - j.arrival);
      mean_seconds_ += (mean_seconds_ == 0 ? 1 : weight) * (seconds - mean_seconds_);
    }
  }
  const std::shared_ptr<serve::http_client> client = j.client;  // It may go while it is told.
  if (!client) return;
  if (p.finished && finish_name(*p.finished).empty()) {
    end_early(j, *client, p);
    j.client.reset();  // Now: if that fails, `lose` tells it.
    if (j.left > 0) service_->cancel(p.of);
    return;
  }
  if (j.streams) {
    stream(j, p);
  } else {
    answer_text& t = j.texts[p.choice];
    t.text += p.text;
    std::ranges::move(p.tokens, std::back_inserter(t.tokens));
    if (p.finished) t.finish_reason = finish_name(*p.finished);
  }
  if (j.left == 0 && j.client) end(j);
}

/// Instead of a text, why there is none.
void chat_app::end_early(const client_job& j, serve::http_client& client, const piece& p) {
  api_error e =
      error_of(500, fmt::format("The sequence was not finished: {}", kv::to_string(*p.finished)));
  serve::http_fields fields;
  const bool has_no_device = p.trouble != device_trouble::none;
  if (has_no_device && p.finished == kv::finish_reason::rejected) {
    counters_.refused(chat_refusal::no_device);
    e = no_device(p.trouble);
    fields.emplace_back("Retry-After", std::to_string(retry_after()));
  } else if (has_no_device) {
    e.message = fmt::format("The sequence was not finished: {}", said_of(p.trouble));
  } else if (p.finished == kv::finish_reason::deadline) {
    e = error_of(503, "The first token would come too late: try later");
    fields.emplace_back("Retry-After", std::to_string(retry_after()));
  } else if (p.finished == kv::finish_reason::rejected) {
    counters_.refused(p.late_for ? chat_refusal::first_token_slo : chat_refusal::no_slot);
    e = error_of(429, "No slot will be free for long: try later");
    if (!p.late_for) {
      fields.emplace_back("Retry-After", std::to_string(retry_after()));
    } else {
      e.message = "The first token would come too late";
      e.code = "first_token_slo";
      if (*p.late_for < unbounded) {
        const double ms = std::max(1.0, std::ceil(to_ms(*p.late_for)));
        e.message += fmt::format(": try in {} ms", ms);
        fields.emplace_back("Retry-After", fmt::format("{}", std::ceil(ms / 1000)));
        fields.emplace_back("Retry-After-Ms", fmt::format("{}", ms));
      }
    }
  }
  if (j.has_begun) {
    client.send(write_failure(e));
    client.end();
  } else {
    fail(client, e, std::move(fields));
  }
}

void chat_app::stream(client_job& j, piece& p) {
  if (!j.has_begun) {
    j.has_begun = true;
    j.client->begin("text/event-stream");
  }
  std::string out;
  const bool is_first = !j.began[p.choice];
  if (j.head.is_chat && is_first) out += write_first(model_, j.head, p.choice);
  j.began[p.choice] = true;
  if (!p.text.empty() || !p.tokens.empty() || (is_first && !j.head.is_chat && !p.finished)) {
    out += write_more(model_, j.head, p.choice,
                      {.text = std::move(p.text), .tokens = std::move(p.tokens)});
  }
  if (p.finished) {
    out += write_more(model_, j.head, p.choice, {.finish_reason = finish_name(*p.finished)});
  }
  j.client->send(out);
}

void chat_app::end(client_job& j) {
  const std::shared_ptr<serve::http_client> client = j.client;  // Until it has been told.
  if (!j.streams) {
    client->answer(
        {.body = write_answer(model_, j.head, j.texts, j.usage), .may_be_compressed = true});
    return j.client.reset();
  }
  std::string out;
  if (j.head.includes_usage) out += write_usage(model_, j.head, j.usage);
  client->send(out.append(last_event));
  client->end();
  j.client.reset();
}

}  // namespace cohort::chat
