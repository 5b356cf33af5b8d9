// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/tables.h"
#include "runtime/report/conclusion.h"
#include "runtime/report/curve_points.h"
#include "runtime/report/report.h"
#include "runtime/study/text_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/study/results.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

RunRecord Record(double loss) {
  RunRecord record;
  record.result.step = 2;
  record.losses = {loss + 1, loss};
  record.seconds = 2;
  record.tokens = 10;
  return record;
}

RunRecord Diverged(int64_t step) {
  RunRecord record = Record(9);
  record.result.status = RunStatus::kDiverged;
  record.result.step = step;
  return record;
}

// Returns a plan of two groups, the second with a name that tables must quote, and the seeds 1, 2
// and 5.
StudyPlan TwoGroups() {
  StudyPlan plan;
  plan.seeds = {1, 2, 5};
  v1::Grid* const axis = plan.study.add_grid();
  axis->set_field("model.n_layer");
  axis->add_value("4");
  plan.models = {{"a", "a.pbtxt", {}, {}, "", {}}, {"b|c", "b.pbtxt", {}, {}, "", {}}};
  plan.cells = {{{"model.n_layer", "4"}}};
  for (size_t model = 0; model < 2; ++model) {
    PlanGroup group;
    group.name = plan.models[model].name + ", n_layer=4";
    group.model = model;
    group.settings = {{"model.n_layer", "4"}};
    group.parameters = 1234;
    group.flops_per_token = 174624;
    group.memory.total = 2048;
    group.unigram_entropies = {100, 200, 300};
    plan.groups.push_back(group);
    for (uint64_t seed : plan.seeds) plan.runs.push_back({model, seed, "", {}});
  }
  return plan;
}

StudyResults Results(const StudyPlan& plan) {
  return EvaluateStudy(plan,
                       {Record(1), Record(2), Record(3), Record(1.5), Record(3), Diverged(7)});
}

TEST(TablesTest, GroupFiguresCoverFinishedRuns) {
  const StudyResults results = Results(TwoGroups());
  EXPECT_EQ(results.groups[1].runs, 3);
  EXPECT_EQ(results.groups[1].finished, 2);
  EXPECT_THAT(results.groups[1].diverged, ElementsAre(5));
  EXPECT_DOUBLE_EQ(results.groups[1].metric[kLast100].mean, (2.0 + 3.5) / 2);
  EXPECT_DOUBLE_EQ(results.groups[0].metric[kLast100].sd, 1);
}

// Each seed has its own batches and therefore its own tokens.
TEST(TablesTest, CollapseUsesTheEntropyOfTheRun) {
  StudyPlan plan = TwoGroups();
  plan.groups[0].unigram_entropies = {1.02, 2.01, 2.9};  // the last losses are 1, 2, 3
  const StudyResults results = Results(plan);
  EXPECT_FALSE(results.runs[0].collapsed);
  EXPECT_TRUE(results.runs[1].collapsed);
  EXPECT_TRUE(results.runs[2].collapsed);
  EXPECT_EQ(results.groups[0].collapsed, 2);
  EXPECT_EQ(results.groups[1].collapsed, 0);
}

TEST(TablesTest, ADivergedRunIsPartOfTheComparison) {
  const StudyResults results = Results(TwoGroups());
  ASSERT_EQ(results.comparisons[kLast100].size(), 1);
  const PairedDifference& paired = results.comparisons[kLast100][0].Pair(0, 1);
  EXPECT_EQ(paired.interval.n, 3);
  EXPECT_EQ(paired.higher, 3);
  EXPECT_EQ(paired.test, PairTest::kSign);
  EXPECT_THAT(results.mean_ranks, ElementsAre(1, 2));
}

// Returns a plan of two models in two cells with four seeds, and runs whose loss is `loss`[group],
// with a small difference between seeds.
StudyResults TwoCells(const std::vector<double>& loss, StudyPlan* plan) {
  plan->seeds = {1, 2, 3, 4};
  plan->models = {{"a", "", {}, {}, "", {}}, {"b", "", {}, {}, "", {}}};
  plan->cells = {{{"train.batch_size", "1"}}, {{"train.batch_size", "2"}}};
  std::vector<RunRecord> records;
  for (size_t group = 0; group < 4; ++group) {
    PlanGroup planned;
    planned.model = group / 2;
    planned.cell = group % 2;
    planned.unigram_entropies = {100, 100, 100, 100};
    plan->groups.push_back(planned);
    for (uint64_t seed : plan->seeds) {
      plan->runs.push_back({group, seed, "", {}});
      records.push_back(Record(loss[group] + 0.01 * static_cast<double>(seed * (group + 1))));
    }
  }
  return EvaluateStudy(*plan, records);
}

TEST(TablesTest, ComparesBestSettingsOnHeldOutSeeds) {
  StudyPlan plan;
  StudyResults results = TwoCells({3, 2, 1, 4}, &plan);
  ASSERT_TRUE(results.best.has_value());
  EXPECT_THAT(results.best->cells, ElementsAre(1, 0));
  EXPECT_EQ(results.best->chosen_with, 2);
  EXPECT_EQ(results.best->comparison.models[0].loss.n, 2);
  // Seeds 3 and 4: of a in cell 1 the last step is 2 + 0.02 seed and the mean of both 0.5 more.
  EXPECT_DOUBLE_EQ(results.best->comparison.models[0].loss.mean, 2.5 + 0.02 * 3.5);
  EXPECT_THAT(results.mean_ranks, ElementsAre(1.5, 1.5));
  EXPECT_EQ(results.Decisive(), &results.best->comparison);
  EXPECT_THAT(TableMarkdown(plan, results),
              HasSubstr("| b | batch_size=1 | edge, +3.015 | 1.605 ± 0.021 | 2 | – | 1.5 |"));
  // A run that diverged makes a setting worse than any without.
  results.records[4 + 1].result.status = RunStatus::kDiverged;
  results = EvaluateStudy(plan, results.records);
  EXPECT_THAT(results.best->cells, ElementsAre(0, 0));
}

TEST(TablesTest, MarkdownNamesTheStepThatDivergedAndEscapesBars) {
  const StudyPlan plan = TwoGroups();
  const std::string text = TableMarkdown(plan, Results(plan));
  EXPECT_THAT(
      text,
      HasSubstr("| a, n_layer=4 | 1,234 | 175 k | 2.0 KiB | 3 | 2.500 ± 1.000 | 2.500 ± 1.000 |"));
  EXPECT_THAT(text, HasSubstr("| b\\|c, n_layer=4 |"));
  EXPECT_THAT(text, HasSubstr("| 1 of 3 (seed 5 at step 7) |"));
  EXPECT_THAT(text,
              HasSubstr("| b\\|c (diverged in 1 of 3) − a, n_layer=4 | last 100 | higher with 3 | "
                        "– | 3 | signs | 0.250 |"));
  EXPECT_THAT(text, HasSubstr("Undecided against a: b\\|c (diverged in 1 of 3;"));
}

TEST(TablesTest, AMarginAddsAColumn) {
  StudyPlan plan = TwoGroups();
  EXPECT_THAT(TableMarkdown(plan, Results(plan)), Not(HasSubstr("equal within")));
  plan.study.set_margin(0.005);
  EXPECT_THAT(TableMarkdown(plan, Results(plan)), HasSubstr("| p (equal within 0.005) |"));
}

TEST(TablesTest, PlacesAreAColumnWithFiveSeeds) {
  StudyPlan plan = TwoGroups();
  EXPECT_THAT(SummaryTable(plan, Results(plan), false).columns, Not(Contains("place")));
  plan.seeds = {1, 2, 3, 4, 5};
  plan.runs.clear();
  std::vector<RunRecord> records;
  for (size_t group = 0; group < 2; ++group) {
    for (uint64_t seed : plan.seeds) {
      plan.runs.push_back({group, seed, "", {}});
      records.push_back(Record(static_cast<double>(group)));
    }
  }
  const StudyResults results = EvaluateStudy(plan, records);
  EXPECT_THAT(SummaryTable(plan, results, false).columns, Contains("place"));
  EXPECT_THAT(TableMarkdown(plan, results), HasSubstr("| 2 | 0 | 0 |"));
}

TEST(TablesTest, CsvQuotesCommasAndDropsMissingValues) {
  const StudyPlan plan = TwoGroups();
  const std::string text = TableCsv(plan, Results(plan));
  EXPECT_THAT(
      text,
      HasSubstr("group,model,model.n_layer,parameters,flops_per_token,steps,memory,runs,finished,"
                "diverged"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\n\"a, n_layer=4\",a,4,1234,174624,0,2048,3,3,0,0,0,0,200,2.5,1,2.5,1,3,1,2,1,,,,,,\n"));
}

TEST(TablesTest, LatexEscapesNamesAndSetsMinusSigns) {
  EXPECT_EQ(ToLatex({{"a_b & c", "100 %"}, {{{"x|y^2"}, {"-0.5 ± 0.1"}}, {{"β−γ"}, {"<0.001"}}}}),
            "\\begin{tabular}{lr}\n\\toprule\na\\_b \\& c & 100 \\% \\\\\n\\midrule\n"
            "x$|$y\\^{}2 & $-$0.5 $\\pm$ 0.1 \\\\\n"
            "\\textbackslash{}u\\{3b2\\}$-$\\textbackslash{}u\\{3b3\\} & $<$0.001 \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
}

// Names are the user's, and no writer may let one be more than text.
TEST(TablesTest, HostileNamesAreTextInAllForms) {
  struct Name {
    const char *name, *csv, *markdown, *latex;
  };
  for (const Name& name : std::vector<Name>{
           {"[pre]", "[pre]", "\\[pre\\]", "{[}pre]"},
           {"*star*", "*star*", "\\*star\\*", "{*}star{*}"},
           {"=1+1", "'=1+1", "=1+1", "=1+1"},
           {"+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0", "+cmd\\|' /C calc'!A0",
            "+cmd$|$' /C calc'!A0"},
           {"-a", "'-a", "-a", "$-$a"},
           {"@x", "'@x", "@x", "@x"},
           {"\t=1", "'\t=1", " =1", " =1"},
           {"\r=1", "\"'\r=1\"", "\\\\r=1", "\\textbackslash{}r=1"},
           {"-0.5", "-0.5", "-0.5", "$-$0.5"},
           {"1e-3", "1e-3", "1e-3", "1e-3"},
           {"a,\"b\"", "\"a,\"\"b\"\"\"", "a,\"b\"", "a,\"b\""},
           {"<script>x</script>", "<script>x</script>", "\\<script>x\\</script>",
            "$<$script$>$x$<$/script$>$"},
           {"<img src=x onerror=y>", "<img src=x onerror=y>", "\\<img src=x onerror=y>",
            "$<$img src=x onerror=y$>$"},
           {"&lt;b", "&lt;b", "\\&lt;b", "\\&lt;b"},
           {"a|b`c`", "a|b`c`", "a\\|b\\`c\\`", "a$|$b{`}c{`}"},
           {"_a_b_", "_a_b_", "\\_a_b_", "\\_a\\_b\\_"},
           {"a\nb", "\"a\nb\"", "a b", "a b"},
           {"\\input{x}", "\\input{x}", "\\\\input{x}", "\\textbackslash{}input\\{x\\}"},
           {"é β 中", "é β 中", "é β 中",
            "é \\textbackslash{}u\\{3b2\\} \\textbackslash{}u\\{4e2d\\}"},
           {"Đ", "Đ", "Đ", "\\textbackslash{}u\\{110\\}"},
           {"\x1b[2J\xff", "\x1b[2J\xff", "\\\\u{1b}\\[2J\\\\xff",
            "\\textbackslash{}u\\{1b\\}{[}2J\\textbackslash{}xff"}}) {
    StudyPlan plan = TwoGroups();
    plan.models[0].name = plan.groups[0].name = name.name;
    const StudyResults results = Results(plan);
    for (const std::string& csv :
         {TableCsv(plan, results), RunsCsv(plan, results), TimingCsv(plan, results)}) {
      EXPECT_THAT(csv, HasSubstr(absl::StrCat("\n", name.csv, ","))) << name.name;
    }
    const std::string markdown = TableMarkdown(plan, results);
    EXPECT_THAT(markdown, HasSubstr(absl::StrCat("\n| ", name.markdown, " | 1,234 |")));
    EXPECT_THAT(markdown, HasSubstr(absl::StrCat(" − ", name.markdown, ", n_layer=4 |")));
    EXPECT_THAT(ToMarkdown({{name.name}, {}}), HasSubstr(absl::StrCat("| ", name.markdown, " |")));
    const std::string text = ToText(SummaryTable(plan, results, false));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << name.name;
    EXPECT_THAT(ToLatex(SummaryTable(plan, results, false)),
                HasSubstr(absl::StrCat("\n", name.latex, " & 1,234 &")));
  }
}

TEST(TablesTest, SpikesAndSkipsAreColumnsIfAny) {
  const StudyPlan plan = TwoGroups();
  EXPECT_THAT(SummaryTable(plan, Results(plan), false).columns, Not(Contains("spikes")));
  std::vector<RunRecord> records = Results(plan).records;
  records[3].result.spikes = 4;
  records[5].result.spikes = 1;  // in the run that also diverged
  records[4].result.skips = 3;
  const StudyResults results = EvaluateStudy(plan, records);
  const std::string text = TableMarkdown(plan, results);
  EXPECT_THAT(text, HasSubstr("| spikes | survived | diverged | collapsed |"));
  EXPECT_THAT(text, HasSubstr("| 0 | 0 | 0 | 0 |"));
  EXPECT_THAT(text, HasSubstr("| 5 | 3 | 1 of 3 (seed 5 at step 7) |"));
  EXPECT_THAT(text, HasSubstr("Spikes: of the loss"));
  EXPECT_THAT(TableCsv(plan, results), HasSubstr(",3,2,1,0,5,3,200,"));
}

TEST(TablesTest, OnlyTheTimingTableHasTimes) {
  const StudyPlan plan = TwoGroups();
  StudyResults slow = Results(plan);
  for (RunRecord& record : slow.records) record.seconds *= 3;
  slow = EvaluateStudy(plan, slow.records);
  EXPECT_EQ(TableCsv(plan, slow), TableCsv(plan, Results(plan)));
  EXPECT_EQ(TableMarkdown(plan, slow), TableMarkdown(plan, Results(plan)));
  EXPECT_NE(TimingCsv(plan, slow), TimingCsv(plan, Results(plan)));
}

TEST(TablesTest, TextColumnsAreAlignedByCharactersNotBytes) {
  Table table;
  table.columns = {"x", "y"};
  table.rows = {{{"±±", 0, 0}, {"1", 0, 0}}, {{"a", 0, 0}, {"1,000", 0, 0}}};
  EXPECT_EQ(ToText(table), "x       y\n±±      1\na   1,000\n");
}

TEST(CurvePointsTest, ShortRunsHaveEveryLoss) {
  const std::vector<double> a = {3, 2, 4}, b = {1, 2};
  const std::vector<int64_t> ends = BlockEnds({&a, &b}, 3);
  EXPECT_THAT(ends, ElementsAre(1, 2, 3));
  EXPECT_EQ(BlockMeans(a, ends), a);
  EXPECT_EQ(BlockMeans(b, ends), b);
}

TEST(CurvePointsTest, LongRunsKeepBothEndsAndTheirExtremes) {
  std::vector<double> quiet(20000, 2), loud = quiet;
  for (size_t step = 0; step < quiet.size(); ++step)
    quiet[step] += 1e-4 * static_cast<double>(step % 7);
  loud[5000] = 90;   // step 5001
  loud[12345] = -1;  // step 12346
  const std::vector<int64_t> ends = BlockEnds({&quiet, &loud}, 500);
  ASSERT_LE(ends.size(), 500u);
  EXPECT_GT(ends.size(), 400u);
  for (int64_t step = 1; step <= 100; ++step) EXPECT_EQ(ends[step - 1], step);
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(ends[ends.size() - 1 - i], 20000 - i);
  EXPECT_THAT(ends, AllOf(Contains(5000), Contains(5001), Contains(12345), Contains(12346)));
  const std::vector<double> means = BlockMeans(loud, ends);
  EXPECT_EQ(*std::max_element(means.begin(), means.end()), 90);
  EXPECT_EQ(*std::min_element(means.begin(), means.end()), -1);
  // The mean of the blocks, each as often as it has steps, is the mean of the losses.
  const std::vector<double> blocks = BlockMeans(quiet, ends);
  double sum = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    sum += blocks[i] * static_cast<double>(ends[i] - (i == 0 ? 0 : ends[i - 1]));
  }
  EXPECT_NEAR(sum, std::accumulate(quiet.begin(), quiet.end(), 0.0), 1e-7);
  // A run that ended early ends with the block of its last step.
  quiet.resize(150);
  const auto last = std::lower_bound(ends.begin(), ends.end(), 150);
  EXPECT_EQ(BlockMeans(quiet, ends).size(), static_cast<size_t>(last - ends.begin() + 1));
}

TEST(CurvePointsTest, ExtremesOfMeansAreInTheOrderOfTheirSteps) {
  const std::vector<double> a = {9, 5, 1, 3, 7, 8}, b = {9, 7, 3, 1};
  EXPECT_THAT(BlockExtremes({&a, &b}, {1, 4, 6}), ElementsAre(6, 2, 7, 8));
}

TEST(CurvePointsTest, ManyRunsHaveFewerPointsEach) {
  EXPECT_EQ(CurvePoints(10), 500);
  EXPECT_EQ(CurvePoints(4000), 250);
  EXPECT_EQ(CurvePoints(100000), 200);
}

TEST(CollapsedTest, IsWithinOnePercentOfTheUnigramEntropyOrAbove) {
  EXPECT_TRUE(IsCollapsed({2.98}, 3));
  EXPECT_TRUE(IsCollapsed({3.5, 3.5}, 3));
  EXPECT_FALSE(IsCollapsed({2.96}, 3));
}

TEST(CollapsedTest, TheFirstLossesOfAShortRunDoNotCount) {
  std::vector<double> losses(41, 9);
  std::fill(losses.begin() + 20, losses.end(), 2.9);
  EXPECT_FALSE(IsCollapsed(losses, 3));
  losses[20] = 9;
  EXPECT_TRUE(IsCollapsed(losses, 3));
  losses.assign(300, 2.9);
  losses[199] = 1000;
  EXPECT_FALSE(IsCollapsed(losses, 3)) << "the last 100 count";
  losses[200] = 1000;
  EXPECT_TRUE(IsCollapsed(losses, 3));
}

TEST(DifferencesTest, ListsTheFieldsThatDifferAndNoOthers) {
  const std::string a = "n_layer: 2\nnorm {\n  name: \"a\"\n}\nnorm {\n  name: \"b\"\n}\n";
  const std::string b = "n_layer: 2\nnorm {\n  name: \"a\"\n}\nd_ff: \"8\"\n";
  EXPECT_THAT(Differences({a, b}), ElementsAre(Pair("norm[1].name", ElementsAre("b", "")),
                                               Pair("d_ff", ElementsAre("", "8"))));
  EXPECT_TRUE(Differences({a, a}).empty());
}

}  // namespace
}  // namespace plumb
