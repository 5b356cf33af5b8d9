// SPDX-License-Identifier: Apache-2.0
// Conclusion of a study in sentences, and the differences from which it is drawn.
#ifndef PLUMB_RUNTIME_REPORT_CONCLUSION_H_
#define PLUMB_RUNTIME_REPORT_CONCLUSION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/study/comparison.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"

namespace plumb {

// Pair of groups in one cell, with its difference.
struct GroupPair {
  Metric metric = kLast100;
  size_t cell = 0, group = 0, against = 0;
  const PairedDifference* difference = nullptr;  // of the results
};

// Returns the pairs to report: all of the judged metric, and those with the first model of the
// others.
std::vector<GroupPair> ReportedPairs(const StudyPlan& plan, const StudyResults& results);

// Returns the conclusion of a study: which models are better, equal or worse than the first, and
// how many seeds would decide about the others.
std::string Conclusion(const StudyPlan& plan, const StudyResults& results);
// Returns the same with kNameMark around the names of models.
std::string ConclusionWithMarks(const StudyPlan& plan, const StudyResults& results);

// Returns the study's title, by default the names of its models. Of more than four, it has the
// first four by result.
std::string StudyTitle(const StudyPlan& plan, const StudyResults& results);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_CONCLUSION_H_
