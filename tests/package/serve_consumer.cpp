// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/metrics.hpp>
#include <string>
#include <variant>

// A request of the protocol is read, and counted, by the installed library.
int main() {
  using namespace cohort;
  const serve::model_meta m{.name = "m",
                            .platform = "none",
                            .inputs = {{"x", cohort::runtime::data_type::f32, {2}}},
                            .outputs = {{"y", cohort::runtime::data_type::f32, {2}}},
                            .slo = duration{1}};
  serve::infer_parser parser{4};
  const auto read =
      parser.parse(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]})", m);
  serve::metrics counters;
  counters.add_model(model_id{0}, m.name);
  counters.refused(model_id{0}, refusal::queue_full);
  const bool counted = counters.text().find("queue_full\"} 1") != std::string::npos;
  return std::holds_alternative<serve::infer_request>(read) && counted ? 0 : 1;
}
