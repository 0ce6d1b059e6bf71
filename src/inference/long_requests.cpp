// SPDX-License-Identifier: Apache-2.0
// Long infer requests are read on threads of their own, so that those behind them need not wait for
// text to become numbers.
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

/// Longer JSON, and longer bodies, are read on another thread: that takes longer than to tell it.
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

/// Whether reading it takes so long that others should not wait for it.
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
      serve::infer_parser parser{settings_.max_rows};  // Its memory goes with it.
      if (!r->is_late) read(*r, parser);
    } catch (...) {
      serve::log_fault("inference_server", "a request cannot be read");
      r->error = serve::protocol_error{.status = 503, .message = {}};  // Without memory for more.
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
    // Without memory for that its client would wait for ever. There is no other way to the thread
    // of HTTP, so it is tried again, until the server ends.
    while (!serve::guarded("inference_server", "what was read waits", go_on) &&
           !http_.is_draining()) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  });
}

/// It has been read elsewhere, for the model that there was then.
void infer_app::resume(reading& r) {
  const unread& u = r.asked;
  if (u.client->is_gone()) return;
  if (r.is_late) return shed(*u.model, serve::shed_reason::waited, *u.client);
  if (catalog_->find(u.model->meta.name, u.version) == r.model) return begin(r);
  r.job.reset();
  infer(u, r.arrival);
}

}  // namespace cohort::inference
