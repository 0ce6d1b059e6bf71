// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/request.hpp>

#include <doctest/doctest.h>

#include <array>
#include <type_traits>

namespace cohort::request_test {
namespace {

// Requests are linked in place: a copy would be a second node with the links of the first.
static_assert(!std::is_copy_constructible_v<request>);
static_assert(!std::is_move_constructible_v<request>);
static_assert(!std::is_copy_assignable_v<request>);

TEST_CASE("a new request is idle, of size one, in the most important class, and linked nowhere") {
  const request r;
  CHECK(r.state == request_state::idle);
  CHECK(r.size == 1);
  CHECK(r.priority == 0);
  CHECK(r.sequence == 0);
  CHECK_FALSE(r.cancel_requested);
  CHECK_FALSE(r.hook.is_linked());
}

TEST_CASE("a list keeps the order of its requests, counts them and owns none") {
  std::array<request, 3> requests;
  for (std::uint64_t i = 0; i < 3; ++i) requests[i].id = request_id{i + 10};
  {
    request_list list;
    for (request& r : requests) list.push_back(r);
    CHECK(list.size() == 3);
    CHECK(requests[1].hook.is_linked());
    std::uint64_t expected = 10;
    for (const request& r : list) CHECK(r.id == request_id{expected++});

    list.erase(list.iterator_to(requests[1]));
    CHECK_FALSE(requests[1].hook.is_linked());
    CHECK(list.size() == 2);
    CHECK(&list.front() == &requests[0]);
    CHECK(&list.back() == &requests[2]);
    list.clear();
  }
  CHECK(requests[0].id == request_id{10});
  CHECK_FALSE(requests[0].hook.is_linked());
}

TEST_CASE("splicing moves requests between lists without touching them") {
  std::array<request, 4> requests;
  request_list queue;
  request_list batch;
  for (request& r : requests) queue.push_back(r);
  auto end = queue.begin();
  ++end;
  ++end;
  batch.splice(batch.end(), queue, queue.begin(), end);
  CHECK(batch.size() == 2);
  CHECK(queue.size() == 2);
  CHECK(&batch.front() == &requests[0]);
  CHECK(&queue.front() == &requests[2]);
  batch.clear();
  queue.clear();
}

TEST_CASE("a request can carry a caller's data by derivation and is found again from the list") {
  struct tagged : request {
    int payload = 0;
  };
  tagged mine;
  mine.payload = 42;
  request_list list;
  list.push_back(mine);
  CHECK(static_cast<tagged&>(list.front()).payload == 42);
  list.clear();
}

}  // namespace
}  // namespace cohort::request_test
