// SPDX-License-Identifier: Apache-2.0
// Requests of mixed sizes through an engine and each test model, on two devices: whatever batches
// the engine makes of them, the answers are ONNX Runtime's own. COHORT_ONNX_REQUESTS is how many
// requests each model gets, 600 if it is not set.
#include <doctest/doctest.h>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/model.hpp>
#include <support/random_source.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <latch>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "onnx_fixture.hpp"
#include "plain_session.hpp"

namespace cohort::runtime::onnx::requests_test {
namespace {
using namespace std::chrono_literals;
using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
using in_order = batching::plain_policy;

constexpr std::uint32_t batch_max = 8;
constexpr std::uint32_t longest = 64;
const std::vector<std::uint32_t> buckets{8, 24, longest};
/// How far an answer among others may lie from that of the request alone, of the answer's largest
/// element: products are summed in another order for another number of rows.
constexpr double bound = 1e-5;

struct counts {
  std::atomic<std::uint64_t> rows{0};
  std::atomic<std::uint64_t> batches{0};
  std::atomic<std::uint64_t> wrong{0};
};

/// A model that runs each slice again, by a session of ONNX Runtime alone and on dense tensors, and
/// counts rows whose bits are others.
class checked_model {
 public:
  checked_model(host_executor& e, std::shared_ptr<const session> s,
                std::shared_ptr<const plain_session> plain, counts& c)
      : executor_{&e},
        session_{s},
        plain_{std::move(plain)},
        counts_{&c},
        model_{e, std::move(s), batch_max},
        in_{session_->interface().inputs, session_->interface().max_size},
        out_{session_->interface().outputs, session_->interface().max_size} {}

  [[nodiscard]] std::string_view name() const { return model_.name(); }
  [[nodiscard]] std::size_t stages() const { return model_.stages(); }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t b) const { return model_.boundary_bytes(b); }
  void enqueue(std::size_t stage, host_executor::stream& stream, const slice& s) {
    model_.enqueue(stage, stream, s);
    executor_->launch(stream, [this, s] { check(s); });
  }

 private:
  void check(const slice& s) {
    const model_interface& m = session_->interface();
    const std::uint32_t size = s.size == 0 ? m.max_size : s.size;
    const std::uint32_t together = session_->has_batch() ? s.count : 1;
    for (std::uint32_t from = 0; from < s.count; from += together) {
      std::vector<plain_session::tensor> inputs;
      for (std::size_t i = 0; i < m.inputs.size(); ++i) {
        const tensor_info& t = m.inputs[i];
        plain_session::tensor& to =
            inputs.emplace_back(plain_session::tensor{formats::onnx_element(t.type), {}, {}});
        if (session_->has_batch()) to.shape.push_back(together);
        for (const std::int64_t d : t.shape) to.shape.push_back(d == size_dimension ? size : d);
        for (std::uint32_t r = from; r < from + together; ++r) {
          const std::byte* row = s.input + (s.first + r) * s.input_stride + in_.offset(i);
          to.data.insert(to.data.end(), row, row + t.bytes(size));
        }
      }
      std::vector<std::size_t> bytes;
      for (const tensor_info& t : m.outputs) bytes.push_back(t.bytes(size) * together);
      const auto expected = plain_->run(inputs, bytes);
      for (std::uint32_t r = 0; r < together; ++r) {
        bool is_equal = true;
        for (std::size_t i = 0; i < m.outputs.size(); ++i) {
          const std::size_t n = m.outputs[i].bytes(size);
          const std::byte* row = s.output + (s.first + from + r) * s.output_stride + out_.offset(i);
          is_equal = is_equal && std::memcmp(row, expected[i].data() + r * n, n) == 0;
        }
        counts_->wrong += is_equal ? 0 : 1;
      }
    }
    counts_->rows += s.count;
    ++counts_->batches;
  }

  host_executor* executor_;
  std::shared_ptr<const session> session_;
  std::shared_ptr<const plain_session> plain_;
  counts* counts_;
  onnx_model<host_executor> model_;
  row_layout in_, out_;
};

struct job : engine::tensor_request {
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  outcome how = outcome::dropped;
};
using room = std::counting_semaphore<>;
struct deliver {
  std::latch* left;
  room* free;
  void operator()(request& r, outcome how) const {
    static_cast<job&>(r).how = how;
    free->release();
    left->count_down();
  }
};

std::uint32_t requests() {
  const char* set = std::getenv("COHORT_ONNX_REQUESTS");
  return set == nullptr ? 600 : static_cast<std::uint32_t>(std::atoi(set));
}

/// A row of a request: numbers in −1 to 1, ids and small integers, and zeros behind its size.
void fill(job& j, const model_interface& m, const row_layout& l, test::random_source& random) {
  j.in.assign(l.bytes(), std::byte{0});
  for (std::size_t i = 0; i < m.inputs.size(); ++i) {
    const tensor_info& t = m.inputs[i];
    for (std::size_t k = 0; k < t.count(j.size); ++k) {
      std::byte* to = j.in.data() + l.offset(i) + k * runtime::bytes_of(t.type);
      if (t.type == data_type::f32) {
        const float x = static_cast<float>(random.below(2001)) / 1000 - 1;
        std::memcpy(to, &x, sizeof x);
      } else if (t.type == data_type::i32) {
        const auto x = static_cast<std::int32_t>(random.below(41)) - 20;
        std::memcpy(to, &x, sizeof x);
      } else {
        REQUIRE(t.type == data_type::i64);
        const auto most = t.name == "attention_mask" ? 1 : test::encoder_words - 1;
        const std::int64_t x = 1 + random.below(most);
        std::memcpy(to, &x, sizeof x);
      }
    }
  }
}

/// The request alone, at its own size.
void check_alone(const session& s, const job& j, const row_layout& in, const row_layout& out) {
  const model_interface& m = s.interface();
  std::vector<std::vector<std::byte>> inputs;
  for (std::size_t i = 0; i < m.inputs.size(); ++i) {
    const std::byte* from = j.in.data() + in.offset(i);
    inputs.emplace_back(from, from + m.inputs[i].bytes(j.size));
  }
  const auto alone = answers(s, inputs, 1, j.size);
  for (std::size_t i = 0; i < m.outputs.size(); ++i) {
    const std::span<const std::byte> got{j.out.data() + out.offset(i), m.outputs[i].bytes(j.size)};
    if (m.outputs[i].type != data_type::f32) {
      CHECK(std::ranges::equal(alone[i], got));
      continue;
    }
    const auto expected = values_of<float>(alone[i]);
    const auto had = values_of<float>(got);
    double largest = 0;
    double off = 0;
    for (std::size_t k = 0; k < had.size(); ++k) {
      largest = std::max(largest, std::abs(static_cast<double>(expected[k])));
      off = std::max(off, std::abs(static_cast<double>(had[k]) - static_cast<double>(expected[k])));
    }
    REQUIRE(largest > 0);
    CHECK(off <= bound * largest);
  }
}

template <class Pipeline>
auto instance(host_executor& e, const std::shared_ptr<const session>& s,
              const std::shared_ptr<const plain_session>& plain, counts& c) {
  typename engine::executor_backend<host_executor, checked_model, Pipeline>::model_type m;
  m.batch_max = batch_max;
  auto made = std::make_unique<checked_model>(e, s, plain, c);
  if constexpr (Pipeline::is_driven) {
    m.buckets = buckets;
    m.options = {.buffer_sets = 2};
    m.policy = [](const batching::stage_profile&) { return in_order{batch_max}; };
    m.instances.push_back(std::move(made));
    m.stages.emplace_back();
    for (std::uint32_t k = 0; k < buckets.size(); ++k) {
      m.stages.back().push_back({.batch = batch_max, .bucket = k, .time = 1ms});
    }
  } else {
    m.instance = std::move(made);
  }
  return m;
}

template <class Pipeline>
void serve(const formats::onnx_model& graph) {
  CAPTURE(graph.name);
  const std::uint32_t total = requests();
  const auto s = load(graph, {.max_size = longest, .pads = padding::zeros});
  const auto plain = std::make_shared<const plain_session>(onnx::runtime(), graph);
  const row_layout in{s->interface().inputs, s->interface().max_size};
  const row_layout out{s->interface().outputs, s->interface().max_size};
  counts seen;
  std::latch left{total};
  room free{256};  // The engine takes no more than some thousand at once.
  host_executor executor{{.pool_bytes = std::size_t{64} << 20U, .queue_depth = 8192}};
  engine::executor_backend<host_executor, checked_model, Pipeline> backend{executor};
  std::deque<job> jobs(total);
  {
    engine::basic_engine run{engine::basic_engine_core<eager>{}, backend,
                             engine::inline_completion{deliver{&left, &free}}};
    backend.bind(run);
    std::vector<device_id> devices;
    for (int i = 0; i < 2; ++i) {
      devices.push_back(run.add_device([&](device_id id) { backend.add_device(id); }));
    }
    const model_id model = run.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, batch_max}, .slo = 1h}},
        [&](model_id id) {
          for (const device_id d : devices) {
            backend.add_model(id, d, instance<Pipeline>(executor, s, plain, seen));
          }
        });
    const steady_clock clock;
    constexpr std::uint64_t seed = 5;
    CAPTURE(seed);
    test::random_source random{seed};
    for (job& j : jobs) {
      j.size = s->interface().has_sizes() ? 1 + random.below(longest) : 1;
      fill(j, s->interface(), in, random);
      j.out.resize(out.bytes());
      j.input = j.in;
      j.output = j.out;
      j.model = model;
      j.arrival = clock.now();
      j.deadline = clock.now() + 1h;
      free.acquire();
      REQUIRE_FALSE(run.submit(j));
    }
    left.wait();
  }
  CHECK(seen.rows == total);
  CHECK(seen.wrong == 0);
  CHECK(seen.batches < total);  // There were batches of more than one.
  for (const job& j : jobs) {
    REQUIRE(j.how == outcome::completed);
    check_alone(*s, j, in, out);
  }
}

TEST_CASE("whole batches: each answer has the bits of the runtime's own on that batch") {
  for (const formats::onnx_model& m : test::all_onnx_models()) serve<engine::whole_batch>(m);
}

TEST_CASE(
    "rows padded to their bucket: each answer has the bits of the runtime's own on that batch") {
  serve<engine::staged<in_order>>(test::encoder());
  serve<engine::staged<in_order>>(test::masked_encoder());
}

}  // namespace
}  // namespace cohort::runtime::onnx::requests_test
