// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/kv_memory.hpp>

#include <doctest/doctest.h>

#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/runtime/host.hpp>

#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::kv_memory_test {
namespace {
using runtime::host_executor;

constexpr kv_shape shape{.layers = 2, .heads = 3, .head_size = 2, .element_bytes = 4};

struct waiter : runtime::completion {
  std::promise<bool> failed;
};

void wait_for(host_executor& e, host_executor::stream& s) {
  waiter w;
  w.invoke = [](runtime::completion& c, bool failed) noexcept {
    static_cast<waiter&>(c).failed.set_value(failed);
  };
  e.notify(s, w);
  CHECK_FALSE(w.failed.get_future().get());
}

/// The value of one element of one token: all different.
float value(std::uint64_t id, std::uint32_t position, std::size_t plane, std::size_t c) {
  return static_cast<float>(((id * 64 + position) * 12 + plane) * 2 + c);
}

TEST_CASE("plans run on real memory leave every sequence its own values") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    host_executor executor{{.pool_bytes = 8U << 20U}};
    host_executor::stream stream = executor.make_stream();
    const std::size_t room = executor.free_bytes();
    {
      kv_memory<host_executor> memory{executor, shape, 4};
      decode_batch batch{{.slots = 4, .columns = 4}};
      copy_plan plan;
      const auto run = [&] {
        memory.execute(stream, plan);
        wait_for(executor, stream);
        plan.clear();
      };
      const auto at = [&](std::uint32_t slot, std::size_t plane, std::uint32_t column) {
        // plane = (layer · 2 + part) · heads + head.
        return reinterpret_cast<float*>(memory.slot(slot)) +
               (plane * memory.columns() + column) * shape.head_size;
      };
      std::vector<prepared> aside;
      std::uint64_t next = 1;
      for (int n = 0; n < 150; ++n) {
        if (random.one_in(10)) {
          const std::uint32_t rows = 1 + random.below(5U);
          if (rows >= batch.live()) batch.resize(rows, plan);
          run();
        }
        const std::uint32_t slot = random.below(batch.size());
        if (batch.is_free(slot)) {
          prepared p;
          if (!aside.empty() && random.one_in(2)) {
            p = aside.back();
            aside.pop_back();
          } else {
            const std::uint32_t m = 1 + random.below(12U);
            p = {.id = request_id{next++},
                 .storage = memory.allocate(m),
                 .prompt = m,
                 .length = m,
                 .produced = 1};
            auto* to = reinterpret_cast<float*>(memory.packed(p.storage));
            for (std::size_t plane = 0; plane < 12; ++plane) {
              for (std::uint32_t j = 0; j < m; ++j) {
                for (std::size_t c = 0; c < 2; ++c) *to++ = value(p.id.value(), j, plane, c);
              }
            }
          }
          batch.insert(slot, p, plan);
          run();
          memory.release(stream, p.storage);
        } else if (random.one_in(4)) {
          batch.remove(slot);
        } else if (random.one_in(3)) {
          const std::uint64_t storage = memory.allocate(batch[slot].who.length);
          aside.push_back(batch.preempt(slot, storage, kv_place::host, plan));
          run();
        } else {
          batch.step(plan);
          run();
          for (std::uint32_t i = 0; i < batch.size(); ++i) {
            if (!batch[i].live) continue;
            batch.produce(i, 0);
            for (std::size_t plane = 0; plane < 12; ++plane) {
              for (std::size_t c = 0; c < 2; ++c) {
                at(i, plane, batch.window().physical(batch.window().end() - 1))[c] =
                    value(batch[i].who.id.value(), batch[i].who.length - 1, plane, c);
              }
            }
          }
        }
        REQUIRE(memory.columns() == batch.window().capacity());
        REQUIRE(memory.stored() == aside.size());
        for (std::uint32_t i = 0; i < batch.size(); ++i) {
          if (!batch[i].live) continue;
          std::uint32_t position = 0;
          batch.for_each_run(i, [&](column_run r) {
            for (std::uint32_t k = 0; k < r.count; ++k, ++position) {
              for (std::size_t plane = 0; plane < 12; ++plane) {
                REQUIRE(at(i, plane, r.first + k)[1] ==
                        value(batch[i].who.id.value(), position, plane, 1));
              }
            }
          });
        }
      }
      for (const prepared& p : aside) memory.release(stream, p.storage);
      wait_for(executor, stream);
      memory.collect();
      REQUIRE(memory.stored() == 0);
    }
    CHECK(executor.free_bytes() == room);
  }
}

TEST_CASE("rows that are given up give their memory back") {
  host_executor executor{{.pool_bytes = 1U << 20U}};
  host_executor::stream stream = executor.make_stream();
  const std::size_t room = executor.free_bytes();
  kv_memory<host_executor> memory{executor, shape, 8};
  decode_batch batch{{.slots = 4, .columns = 8}};
  copy_plan plan;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint64_t storage = memory.allocate(4);
    batch.insert(i,
                 {.id = request_id{i}, .storage = storage, .prompt = 4, .length = 4, .produced = 1},
                 plan);
    memory.execute(stream, plan);
    plan.clear();
    memory.release(stream, storage);
  }
  wait_for(executor, stream);
  memory.collect();
  const std::size_t slot = shape.column_bytes() * 8;  // A multiple of 64.
  CHECK(executor.free_bytes() == room - 4 * slot);
  batch.remove(0);
  batch.remove(3);
  batch.resize(2, plan);
  memory.execute(stream, plan);
  wait_for(executor, stream);
  memory.collect();
  CHECK(executor.free_bytes() == room - 2 * slot);
}

/// Has memory for so many more buffers.
struct tight_executor : host_executor {
  using host_executor::host_executor;
  [[nodiscard]] buffer allocate(std::size_t bytes) {
    if (room-- == 0) throw resource_error{"no room"};
    return host_executor::allocate(bytes);
  }
  std::uint64_t room = UINT64_MAX;
};

TEST_CASE(
    "after a plan for which there was no room others are carried out, and no memory is lost") {
  tight_executor executor{runtime::host_options{.pool_bytes = 1U << 20U}};
  const std::size_t room = executor.free_bytes();
  host_executor::stream stream = executor.make_stream();
  {
    kv_memory<tight_executor> memory{executor, shape, 4};
    decode_batch batch{{.slots = 2, .columns = 4}};
    copy_plan plan;
    const auto run = [&] {
      memory.execute(stream, plan);
      plan.clear();
    };
    const auto enter = [&](std::uint32_t slot, std::uint64_t id, std::uint32_t length) {
      const std::uint64_t storage = memory.allocate(length);
      auto* to = reinterpret_cast<float*>(memory.packed(storage));
      for (std::size_t plane = 0; plane < 12; ++plane) {
        for (std::uint32_t j = 0; j < length; ++j) {
          for (std::size_t c = 0; c < 2; ++c) *to++ = value(id, j, plane, c);
        }
      }
      batch.insert(slot,
                   {.id = request_id{id},
                    .storage = storage,
                    .prompt = length,
                    .length = length,
                    .produced = 1},
                   plan);
      run();
      memory.release(stream, storage);
    };
    enter(0, 1, 3);
    enter(1, 2, 4);
    batch.step(plan);  // Both need five columns.
    executor.room = 1;
    CHECK_THROWS_AS(memory.execute(stream, plan), resource_error);
    plan.clear();
    executor.room = UINT64_MAX;
    CHECK(memory.columns() == batch.window().capacity());
    // Whatever follows: growth, though one of the slots has no memory, and one that leaves.
    while (batch.window().capacity() == memory.columns() && batch.length() < 9) {
      batch.step(plan);
      run();
    }
    CHECK(memory.columns() == 16);
    batch.remove(0);
    batch.remove(1);
    enter(1, 3, 6);
    wait_for(executor, stream);
    std::uint32_t position = 0;
    batch.for_each_run(1, [&](column_run r) {
      for (std::uint32_t k = 0; k < r.count; ++k, ++position) {
        for (std::size_t plane = 0; plane < 12; ++plane) {
          const auto* at = reinterpret_cast<const float*>(memory.slot(1)) +
                           (plane * memory.columns() + r.first + k) * shape.head_size;
          CHECK(at[1] == value(3, position, plane, 1));
        }
      }
    });
    CHECK(position == 6);
    CHECK(memory.stored() == 0);
  }
  wait_for(executor, stream);
  CHECK(executor.free_bytes() == room);
}

TEST_CASE("an executor without room says so, and dimensions are checked") {
  host_executor executor{{.pool_bytes = 4096}};
  CHECK_THROWS_AS((kv_memory<host_executor>{executor, {.layers = 0}, 1}), config_error);
  CHECK_THROWS_AS((kv_memory<host_executor>{executor, shape, 0}), config_error);
  kv_memory<host_executor> memory{executor, shape, 4};
  CHECK_THROWS_AS((void)memory.allocate(1000), resource_error);
  CHECK(memory.stored() == 0);
}

}  // namespace
}  // namespace cohort::kv::kv_memory_test
