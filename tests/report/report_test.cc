// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/report.h"

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plumb {
namespace {

using ::nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string ReadSource(const std::string& path) {
  std::ifstream in(absl::StrCat(PLUMB_SOURCE_DIR, "/runtime/report/", path), std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

size_t Count(absl::string_view text, absl::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != absl::string_view::npos;
       at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

// Returns the text that a browser takes for the content of the data element.
std::string GetData(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"report\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script", from) - from);
}

TEST(JsonForScriptTest, EscapesMarkupAndScripts) {
  const std::string text =
      JsonForScript({{"</script><!--", "<script> & \xe2\x80\xa8 \xe2\x80\xa9 \" \\ \n \x01"}});
  for (const char* character : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9", "\n"}) {
    EXPECT_THAT(text, Not(HasSubstr(character)));
  }
}

TEST(JsonForScriptTest, IsTheSameValueToAParser) {
  const ordered_json value = {
      {"</script>", {"a&b", "\xe2\x80\xa8", "\\u003c", "\\", 1.5, -3, nullptr, true}},
      {"z", {{"deep", ordered_json::array()}}},
      {"a", "order is kept"}};
  EXPECT_EQ(ordered_json::parse(JsonForScript(value)), value);
}

TEST(JsonForScriptTest, WritesNumbersThatAreNotFiniteAsNull) {
  const ordered_json value = {std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(), 0.25};
  EXPECT_EQ(JsonForScript(value), "[null,null,0.25]");
}

TEST(JsonForScriptTest, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonForScript({"a\xff\xc3"}), "[\"a\xef\xbf\xbd\xef\xbf\xbd\"]");
}

TEST(RenderReportTest, ContainsTheDataOnce) {
  const ordered_json report = {{"title", "</script><script>alert(1)</script>{{script}}"}};
  const std::string page = RenderReport(report);
  EXPECT_EQ(ordered_json::parse(GetData(page)), report);
  EXPECT_EQ(page.size(), RenderReport({}).size() - 4 + JsonForScript(report).size());
}

TEST(RenderReportTest, TakesAnyJson) {
  for (const ordered_json& value : {ordered_json(), ordered_json(3), ordered_json::array()}) {
    EXPECT_EQ(ordered_json::parse(GetData(RenderReport(value))), value);
  }
}

TEST(ReportPageTest, IsSelfContained) {
  const std::string page = RenderReport({});
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_EQ(Count(page, "<script"), 4);
  EXPECT_EQ(Count(page, "</script"), 4);
  EXPECT_EQ(Count(page, "<style"), 1);
  EXPECT_EQ(Count(page, "{{"), 0);
  for (const char* loads : {" src=", "@import", "url(", "<iframe", "fetch(", "XMLHttpRequest"}) {
    EXPECT_THAT(page, Not(HasSubstr(loads)));
  }
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'unsafe-inline'; "
                              "style-src 'unsafe-inline'; img-src data:\""));
}

TEST(ReportPageTest, CarriesUplotUnchangedWithItsLicense) {
  const std::string page = RenderReport({});
  for (const char* file : {"uPlot.iife.min.js", "uPlot.min.css", "LICENSE"}) {
    const std::string content = ReadSource(absl::StrCat("uplot/", file));
    ASSERT_GT(content.size(), 100) << file;
    EXPECT_THAT(page, HasSubstr(content)) << file;
  }
}

TEST(ReportPageTest, PutsNoTextIntoThePageAsMarkup) {
  const std::string page(PageAfterData());
  const std::string own = page.substr(page.rfind("<script>"));
  for (const char* markup :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(own, Not(HasSubstr(markup)));
  }
}

}  // namespace
}  // namespace plumb
