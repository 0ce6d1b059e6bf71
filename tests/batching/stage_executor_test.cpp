// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/stage_executor.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/meta_ops.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>

namespace cohort::batching::stage_executor_test {
namespace {
constexpr time_point t0{};

TEST_CASE("an executor passes its four states, and buffers show what they are") {
  executor_chain c{2, 1};
  const item work{batch_id{0}, 0, 1};
  CHECK(c.is_idle());
  CHECK(c.pull(0, work, 0));
  CHECK(c[0].state == executor_state::working);
  CHECK(c.buffers().at(0, 0).shown() == "in-reading");
  CHECK(c.buffers().at(1, 0).shown() == "in-writing");
  c.complete(0);
  CHECK(c[0].state == executor_state::inactive);
  CHECK(c.buffers().at(0, 0).shown() == "invalid");
  CHECK(c.buffers().at(1, 0).shown() == "available");
  CHECK(c.pull(1, work, 0));
  CHECK_FALSE(c.can_activate(0));
  c.complete(1);  // The last: active directly, and the set is back at the first.
  CHECK(c[1].state == executor_state::active);
  CHECK(c.can_activate(0));
  CHECK(c.buffers().all_available());
  CHECK_FALSE(c.is_idle());  // The first stage is still inactive.
  c.activate(0);
  CHECK(c.is_idle());
}
TEST_CASE("with two sets an executor gives one back as soon as it can use the other") {
  executor_chain c{3, 2};
  const item work{batch_id{0}, 0, 1};
  c.pull(0, work, 0);
  c.complete(0);
  CHECK(c[0].state == executor_state::active);  // Set 1 is left.
  c.pull(1, work, 0);
  CHECK(c.pull(0, work, 1));
  CHECK(c.working() == 2);
  c.complete(1);  // Set 1 is still being written: it waits, and so does set 0.
  CHECK(c[1].state == executor_state::inactive);
  CHECK_FALSE(c.buffers().at(0, 0).valid);
  c.complete(0);
  CHECK(c[0].state == executor_state::inactive);
  c.settle([](std::uint32_t) {});
  CHECK(c[1].state == executor_state::active);
  CHECK(c.buffers().at(0, 0).valid);
  CHECK(c[0].state == executor_state::active);
  CHECK(c.pull(0, work, 0));
  c.complete(0);
  c.pull(1, work, 1);
  c.complete(1);
  c.settle([](std::uint32_t) {});
  CHECK(c[1].state == executor_state::inactive);  // Stage 2 has not taken either set yet.
}
TEST_CASE("an executor that may not use the set of its item checks and launches nothing") {
  executor_chain c{2, 1};
  const item work{batch_id{0}, 0, 1};
  c.pull(0, work, 0);
  CHECK_FALSE(c.pull(1, work, 0));  // Its input is being written.
  CHECK(c[1].state == executor_state::checking);
  CHECK_FALSE(c.can_start(1));
  CHECK(c.working() == 1);
  c.complete(0);
  CHECK(c.can_start(1));
  int started = 0;
  c.settle([&](std::uint32_t s) { started += s == 1 ? 1 : 100; });
  CHECK(started == 1);
}
TEST_CASE("no stage and no set are errors") {
  CHECK(test::gist_of<config_error>([&] { (void)executor_chain(0, 2); }) ==
        "buffer_sets: stages ... at least 1");
  CHECK(test::gist_of<config_error>([&] { (void)executor_chain(3, 0); }) ==
        "buffer_sets: buffer sets ... at least 1");
}

// --- All interleavings -----------------------------------------------------------------------

struct literal_hold : repaired_rules {
  static constexpr bool hold_returns_set = false;
};
struct literal_split : repaired_rules {
  static constexpr bool split_counts_parts = false;
};
struct out_busy_dropped : repaired_rules {
  static bool is_legit(const buffer_sets& b, std::uint32_t stage, std::uint32_t set) noexcept {
    return b.at(stage, set).valid && b.at(stage, set).use == buffer_use::none;
  }
};
struct valid_dropped : repaired_rules {
  static bool is_legit(const buffer_sets& b, std::uint32_t stage, std::uint32_t set) noexcept {
    return b.at(stage, set).use == buffer_use::none && b.at(stage + 1, set).use == buffer_use::none;
  }
};
struct sets_ignored : repaired_rules {
  static bool is_legit(const buffer_sets&, std::uint32_t, std::uint32_t) noexcept { return true; }
};
struct returned_when_done : repaired_rules {
  static constexpr return_rule returns = return_rule::when_done;
};
struct returned_when_started : repaired_rules {
  static constexpr return_rule returns = return_rule::when_started;
};
struct early_and_out_busy_dropped : out_busy_dropped {
  static constexpr return_rule returns = return_rule::when_started;
};
struct never_returned : repaired_rules {
  static constexpr return_rule returns = return_rule::never;
};
struct input_kept_valid : repaired_rules {
  static constexpr bool consumes_input = false;
};
struct outputs_not_drained : repaired_rules {
  static constexpr bool drains_outputs = false;
};
/// Rules that the explorer follows itself, outside the executors.
struct serial_ignored : repaired_rules {};
struct row_changes_sets : repaired_rules {};

constexpr std::uint32_t nowhere = UINT32_MAX;

struct scenario {
  std::uint32_t sets = 1;
  std::uint32_t batches = 3;
  std::uint32_t split_after = nowhere;  // Every row of two or more splits after this stage.
  std::uint32_t stretches = 0;          // Stretches by one request.
  std::uint32_t times = 1;              // How often one row may be.
  bool serial_children = false;
  bool nested = false;  // Children of two or more split again after the next stage.
};

struct verdict {
  std::size_t states = 0;
  std::size_t hazards = 0;
  std::size_t deadlocks = 0;
  std::size_t good_ends = 0;
  std::uint32_t max_working = 0;
  bool depth_first = true;
  bool siblings_together = false;  // Two parts of one row were at work at once.
  bool held = false;
  bool had_split = false;
};

/// Executors, table and what is in every buffer: driven by every order of events.
template <class Rules>
struct world {
  static constexpr std::uint32_t stages = 4;
  static constexpr std::uint32_t width = 4;
  struct cell {
    std::uint64_t tag = UINT64_MAX;
    std::uint32_t version = 0;  // Boundary for which it was written.
  };

  explicit world(const scenario& s)
      : ops{{.stages = stages, .batch_max = width, .max_rows = s.batches * width}},
        chain{stages, s.sets},
        cells(std::size_t{stages + 1} * s.sets * width) {}

  meta_ops<> ops;
  basic_executor_chain<Rules> chain;
  std::vector<cell> cells;
  std::uint32_t made = 0;
  std::uint32_t stretched = 0;
  std::uint32_t ended = 0;
  std::pair<std::uint64_t, std::uint32_t> last_end{0, 0};
  bool in_order = true;

  cell& at(std::uint32_t boundary, std::uint32_t set, std::uint32_t slot) {
    return cells[(std::size_t{boundary} * chain.buffers().sets() + set) * width + slot];
  }
  bool reads_right(std::uint32_t stage) {
    const stage_executor& e = chain[stage];
    const batch_row& r = ops.table()[e.work.batch];
    for (std::uint32_t k = e.work.start; k < e.work.start + e.work.count; ++k) {
      const cell& c = at(stage, e.set, r.base + k);
      if (c.tag != r.slots[k].request.tag || c.version != stage) return false;
    }
    return true;
  }
  void write(std::uint32_t stage, bool done) {
    const stage_executor& e = chain[stage];
    const batch_row& r = ops.table()[e.work.batch];
    for (std::uint32_t k = e.work.start; k < e.work.start + e.work.count; ++k) {
      at(stage + 1, e.set, r.base + k) =
          done ? cell{r.slots[k].request.tag, stage + 1} : cell{UINT64_MAX, 0};
    }
  }
  /// @returns False at a hazard.
  bool started(std::uint32_t stage) {
    const stage_executor& e = chain[stage];
    if (stage == 0) {  // The inputs of a row are written as it is taken.
      const batch_row& r = ops.table()[e.work.batch];
      for (std::uint32_t k = e.work.start; k < e.work.start + e.work.count; ++k) {
        at(0, e.set, r.base + k) = {r.slots[k].request.tag, 0};
      }
    }
    for (std::uint32_t other = 0; other < stages; ++other) {  // I1.
      if (other == stage || chain[other].state != executor_state::working) continue;
      if (chain[other].set == e.set && (other + 1 == stage || stage + 1 == other)) return false;
    }
    const bool right = reads_right(stage);
    write(stage, false);
    return right;
  }

  /// Everything that the future depends on.
  std::string key() {
    std::string k;
    const auto put = [&](std::uint64_t x) { k += static_cast<char>(x & 0xFFU); };
    std::vector<batch_id> ids;
    for (batch_row* r = ops.table().oldest(); r != nullptr; r = ops.table().after(*r)) {
      ids.push_back(r->id);
    }
    const auto index = [&](batch_id id) {
      return static_cast<std::uint64_t>(std::ranges::find(ids, id) - ids.begin());
    };
    const auto put_item = [&](const item& i) { put(index(i.batch)), put(i.start), put(i.count); };
    for (const batch_id id : ids) {
      const batch_row& r = ops.table()[id];
      put(r.size), put(r.base), put(r.set), put(r.parent != no_batch ? 1 : 0),
          put(r.no_stretch ? 1 : 0);
      put(r.order), put(r.slots[0].request.tag);
      for (const std::uint32_t c : r.completed) put(c);
      for (const std::uint32_t c : r.issued) put(c);
    }
    k += '|';
    for (std::uint32_t s = 0; s < stages; ++s) {
      for (std::size_t i = 0; i < ops.queue(s).size(); ++i) put_item(ops.queue(s)[i]);
      k += ';';
      const stage_executor& e = chain[s];
      put(static_cast<std::uint64_t>(e.state)), put(e.finished);
      if (e.state == executor_state::checking || e.state == executor_state::working) {
        put_item(e.work), put(e.set);
      }
    }
    for (std::uint32_t b = 0; b <= stages; ++b) {
      for (std::uint32_t j = 0; j < chain.buffers().sets(); ++j) {
        const buffer_state& x = chain.buffers().at(b, j);
        put((x.valid ? 1U : 0U) | static_cast<unsigned>(x.use) << 1U | x.unread_parts << 3U);
      }
    }
    for (const cell& c : cells) put(c.tag), put(c.version);
    put(made), put(stretched), put(in_order ? 1 : 0), put(last_end.first), put(last_end.second);
    return k;
  }
};

template <class Rules>
struct explorer {
  using state = world<Rules>;
  scenario how;
  verdict result{};
  std::unordered_set<std::string> seen{};
  std::vector<state> open{};

  void visit(state w) {
    result.max_working = std::max(result.max_working, w.chain.working());
    result.depth_first &= w.in_order;
    for (std::uint32_t s = 0; s + 1 < w.chain.stages(); ++s) {
      for (std::uint32_t t = s + 1; t < w.chain.stages(); ++t) {
        if (w.chain[s].state != executor_state::working ||
            w.chain[t].state != executor_state::working) {
          continue;
        }
        const batch_row& a = w.ops.table()[w.chain[s].work.batch];
        const batch_row& b = w.ops.table()[w.chain[t].work.batch];
        result.siblings_together |= a.id != b.id && a.parent != no_batch && a.parent == b.parent;
      }
    }
    if (seen.insert(w.key()).second) open.push_back(std::move(w));
  }

  /// Takes the item at the head of a stage's queue, if the stage may.
  bool pull(state& w, std::uint32_t s, bool& right) {
    if (w.chain[s].state != executor_state::active || w.ops.queue(s).empty()) return false;
    const item next = w.ops.queue(s)[0];
    batch_row& r = w.ops.table()[next.batch];
    if constexpr (!std::is_same_v<Rules, serial_ignored>) {
      if (r.serial && w.ops.has_earlier_sibling(next.batch)) return false;
    }
    if (r.set == no_set || (std::is_same_v<Rules, row_changes_sets> && s == 0)) {
      r.set = w.chain.legit_set(0);
      if (r.set == no_set) return false;
    }
    w.ops.take(s);
    right = !w.chain.pull(s, next, r.set) || w.started(s);
    return true;
  }

  bool finish(state& w, std::uint32_t s) {
    const item done = w.chain[s].work;
    const bool right = w.reads_right(s);  // Not overwritten while it was read.
    w.write(s, true);
    const batch_row before = w.ops.table()[done.batch];
    switch (w.ops.finish(s, done, t0)) {
      case progress::held:
        w.chain.complete_held(s);
        result.held = true;
        break;
      case progress::followed:
        w.ops.hand_over(s, done.batch, t0);
        w.chain.complete(s);
        break;
      case progress::whole: {
        const bool splits =
            before.size > 1 && (s == how.split_after || (how.nested && s == how.split_after + 1));
        if (splits) {
          const std::uint32_t part = before.size / 2;
          REQUIRE(w.ops.split(s, done.batch, std::array{before.size - part, part}, t0,
                              how.serial_children));
          result.had_split = true;
        } else {
          w.ops.hand_over(s, done.batch, t0);
        }
        w.chain.complete(s, splits ? 2 : 1);
        break;
      }
      case progress::ended: {
        const std::pair at{before.order, before.base};
        w.in_order &= w.ended == 0 || w.last_end < at;
        w.last_end = at;
        ++w.ended;
        w.ops.remove(done.batch);
        w.chain.complete(s);
        break;
      }
    }
    return right;
  }

  verdict run() {
    visit(state{how});
    while (!open.empty()) {
      const state w = std::move(open.back());
      open.pop_back();
      bool moved = false;
      const auto next = [&](state&& to, bool right) {
        moved = true;
        if (!right) {
          ++result.hazards;  // Do not look beyond.
          return;
        }
        visit(std::move(to));
      };
      const std::uint32_t size = how.split_after == nowhere ? 1 : how.nested ? 3 : 2;
      if (w.made < how.batches) {
        state to = w;
        std::vector<staged_request> r(size);
        for (std::uint32_t i = 0; i < size; ++i) r[i].tag = to.made * world<Rules>::width + i;
        REQUIRE(to.ops.make(r, t0));
        ++to.made;
        next(std::move(to), true);
      }
      if (w.stretched < how.stretches && w.ops.can_stretch(1, t0) == meta_refusal::none) {
        const batch_row& r = *w.ops.table().latest();
        if (r.size < size + how.times) {
          state to = w;
          const staged_request late{.tag = r.slots[0].request.tag + r.size};
          REQUIRE(to.ops.stretch(std::span{&late, 1}, t0));
          ++to.stretched;
          next(std::move(to), true);
        }
      }
      for (std::uint32_t s = 0; s < world<Rules>::stages; ++s) {
        if (w.chain[s].state == executor_state::active && !w.ops.queue(s).empty()) {
          state to = w;
          bool right = true;
          if (pull(to, s, right)) next(std::move(to), right);
        }
        if (w.chain.can_start(s)) {
          state to = w;
          to.chain.start(s);
          const bool right = to.started(s);
          next(std::move(to), right);
        }
        if (w.chain.can_activate(s)) {
          state to = w;
          to.chain.activate(s);
          next(std::move(to), true);
        }
        if (w.chain[s].state == executor_state::working) {
          state to = w;
          const bool right = finish(to, s);
          next(std::move(to), right);
        }
      }
      if (!moved) {
        if (w.made == how.batches && w.ops.table().empty() && w.chain.is_idle()) {
          ++result.good_ends;
        } else {
          ++result.deadlocks;
        }
      }
    }
    result.states = seen.size();
    return result;
  }
};

template <class Rules = repaired_rules>
verdict explore(const scenario& s) {
  return explorer<Rules>{s}.run();
}

void check_good(const verdict& v, const scenario& s) {
  CAPTURE(s.sets);
  CAPTURE(s.batches);
  CAPTURE(s.split_after);
  CAPTURE(s.stretches);
  CHECK(v.hazards == 0);
  CHECK(v.deadlocks == 0);
  CHECK(v.good_ends > 0);
  if (s.sets == 1) {
    CHECK(v.max_working == 1);
    CHECK(v.depth_first);
  } else {
    CHECK(v.max_working >= 2);
  }
  CHECK(v.held == (s.stretches > 0));
  CHECK(v.had_split == (s.split_after != nowhere));
}

/// One batch less under sanitizers, where all interleavings of four take long.
constexpr std::uint32_t most_batches = test::is_sanitized ? 3 : 4;

TEST_CASE("no interleaving of plain batches has a hazard or a deadlock") {
  for (const std::uint32_t sets : {1U, 2U, 3U}) {
    const scenario s{.sets = sets, .batches = 4};
    const verdict v = explore(s);
    check_good(v, s);
    CHECK(v.max_working == (sets == 1 ? 1 : 4));
    CHECK(v.depth_first);
  }
}
TEST_CASE("no interleaving has one with a split after any stage") {
  for (const std::uint32_t sets : {1U, 2U}) {
    for (const std::uint32_t after : {0U, 1U, 2U}) {
      for (const bool serial : {false, true}) {
        const scenario s{
            .sets = sets, .batches = most_batches, .split_after = after, .serial_children = serial};
        const verdict v = explore(s);
        check_good(v, s);
        // Parts share a set: neighbouring stages never have two, those beyond do.
        CHECK(v.siblings_together == (sets > 1 && !serial && after + 3 < 4));
      }
    }
  }
}
TEST_CASE("no interleaving has one with nested splits") {
  for (const std::uint32_t sets : {1U, 2U}) {
    const scenario s{.sets = sets, .batches = 3, .split_after = 0, .nested = true};
    check_good(explore(s), s);
  }
}
TEST_CASE("no interleaving has one with rows held at any stage") {
  for (const std::uint32_t sets : {1U, 2U}) {
    const scenario s{.sets = sets, .batches = most_batches, .stretches = most_batches};
    check_good(explore(s), s);
  }
}
TEST_CASE("no interleaving has one with rows stretched again while stragglers catch up") {
  for (const std::uint32_t sets : {1U, 2U}) {
    const scenario s{.sets = sets, .batches = 3, .stretches = 3, .times = 3};
    check_good(explore(s), s);
  }
}
TEST_CASE("no interleaving has one with stretch and split together") {
  for (const std::uint32_t sets : {1U, 2U}) {
    for (const std::uint32_t after : {0U, 1U, 2U}) {
      const scenario s{.sets = sets, .batches = 3, .split_after = after, .stretches = 1};
      check_good(explore(s), s);
    }
  }
}
TEST_CASE("the printed rules are caught: hold deadlocks, split is overwritten") {
  for (const std::uint32_t sets : {1U, 2U}) {
    CAPTURE(sets);
    const verdict hold = explore<literal_hold>({.sets = sets, .batches = 3, .stretches = 1});
    CHECK(hold.deadlocks > 0);
    const verdict split = explore<literal_split>({.sets = sets, .batches = 3, .split_after = 1});
    CHECK(split.hazards > 0);
  }
}

// Each rule of the protocol taken out, on its own.
const scenario plain_one{.sets = 1, .batches = 3};
const scenario plain_two{.sets = 2, .batches = 3};
const scenario split_one{.sets = 1, .batches = 3, .split_after = 0};
const scenario split_two{.sets = 2, .batches = 3, .split_after = 0};
const scenario stretched_two{.sets = 2, .batches = 3, .stretches = 2};

TEST_CASE_TEMPLATE("without the token of a set, or with sets ignored, buffers are overwritten",
                   Mutant, valid_dropped, input_kept_valid, sets_ignored) {
  for (const scenario& s : {plain_one, plain_two, split_one, split_two, stretched_two}) {
    const verdict v = explore<Mutant>(s);
    CHECK(v.hazards > 0);
    if (s.sets == 1) CHECK(v.max_working > 1);
  }
}
TEST_CASE_TEMPLATE("a set that never comes back is a deadlock", Mutant, never_returned,
                   outputs_not_drained) {
  for (const scenario& s : {plain_one, plain_two, split_one, split_two, stretched_two}) {
    const verdict v = explore<Mutant>(s);
    CHECK(v.deadlocks > 0);
    CHECK(v.good_ends == 0);
  }
}
TEST_CASE_TEMPLATE("a set given back early lets two work on one set", Mutant, returned_when_done,
                   returned_when_started) {
  CHECK(explore<Mutant>(plain_one).max_working == 2);
  const verdict split = explore<Mutant>(split_one);
  CHECK(split.max_working == 2);
  // From the start on, parts of the row that are still unread are overwritten as well.
  CHECK((split.hazards > 0) == (Mutant::returns == return_rule::when_started));
}
TEST_CASE("parts that should be serial and are not work at once") {
  const scenario serial{.sets = 2, .batches = 3, .split_after = 0, .serial_children = true};
  CHECK_FALSE(explore(serial).siblings_together);
  CHECK(explore<serial_ignored>(serial).siblings_together);
}
TEST_CASE("a row that changes its set leaves what it has written behind") {
  CHECK(explore<row_changes_sets>(stretched_two).hazards > 0);
}
TEST_CASE("that a buffer in use is not touched follows from the tokens, and guards them") {
  // Alone it can be left out: no order of events can tell.
  for (const scenario& s : {plain_one, plain_two, split_one, split_two, stretched_two}) {
    const verdict right = explore(s);
    const verdict v = explore<out_busy_dropped>(s);
    CHECK(v.states == right.states);
    CHECK(v.hazards + v.deadlocks == 0);
    CHECK(v.max_working == right.max_working);
  }
  // Where a set is given back early it is what keeps the buffers whole.
  CHECK(explore<returned_when_started>(plain_one).hazards == 0);
  CHECK(explore<early_and_out_busy_dropped>(plain_one).hazards > 0);
  CHECK(explore<early_and_out_busy_dropped>(plain_two).hazards > 0);
}
}  // namespace
}  // namespace cohort::batching::stage_executor_test
