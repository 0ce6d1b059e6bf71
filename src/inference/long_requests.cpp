// SPDX-License-Identifier: Apache-2.0
// Long infer requests are parsed on separate threads, so that the requests behind them need not
// wait for the conversion of text to numbers.
#include "infer_app.hpp"

#include "infer_job.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <serve/barrier.hpp>
#include <string>
#include <thread>
#include <utility>

#include "answers.hpp"

namespace cohort::inference {
namespace {

/// Longer JSON and longer bodies are parsed on another thread; the hand-over is cheaper than that.
constexpr std::size_t long_json = std::size_t{64} << 10U;
constexpr std::size_t long_body = std::size_t{1} << 20U;

}  // namespace

struct infer_app::readers {
  boost::asio::thread_pool pool{std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U)};
};
std::shared_ptr<infer_app::readers> infer_app::make_readers() {
  return std::make_shared<readers>();
}
void infer_app::end_reading() {
  readers_->pool.stop();
  readers_->pool.join();
}

/// Whether parsing the request takes so long that other requests should not wait for it.
bool infer_app::is_long(const unread& u) {
  const std::size_t json = serve::json_bytes(u.json_length, u.body.size());
  return json > long_json || u.body.size() > long_body ||
         (u.may_share && u.body.substr(0, json).find("shared_memory_region") != u.body.npos);
}

void infer_app::read_elsewhere(const unread& u, model_catalog::entry found, time_point arrival) {
  const auto r =
      std::make_shared<reading>(reading{.asked = u, .model = std::move(found), .arrival = arrival});
  r->until = arrival + budget_of(*r->model).limit;
  boost::asio::post(readers_->pool, [this, r] {
    r->is_late = clock_.now() > r->until;
    try {
      serve::infer_parser parser{settings_.max_rows};  // Its memory is freed with it.
      if (!r->is_late) read(*r, parser);
    } catch (...) {
      serve::log_fault("inference_server", "a request cannot be read");
      r->error = serve::protocol_error{.status = 503, .message = {}};  // Needs no memory.
      serve::guarded("inference_server", "a request cannot be read", [&] {
        const serve::fault f = serve::current_fault();
        r->error = serve::protocol_error{.status = f.status, .message = f.message};
      });
    }
    const auto go_on = [&] {
      http_.post([this, r] {
        try {
          resume(*r);
        } catch (...) {
          say_fault(r->asked.client, "a request failed");
        }
        wake_service();
      });
    };
    // Without memory for the callback the client would wait for ever. No other way leads to HTTP's
    // thread, so this retries until the server ends.
    while (!serve::guarded("inference_server", "what was read waits", go_on) &&
           !http_.is_draining()) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  });
}

/// Continues with a request that another thread parsed, for the model that was served then.
void infer_app::resume(reading& r) {
  const unread& u = r.asked;
  if (u.client->is_gone()) return;
  if (r.is_late) return shed(*u.model, serve::shed_reason::waited, *u.client);
  if (catalog_->find(u.model->meta.name, u.version) == r.model) return begin(r);
  r.job.reset();
  infer(u, r.arrival);
}

}  // namespace cohort::inference
