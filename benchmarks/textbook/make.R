# Makes the tables of this folder from data sets that ship with R packages: Rscript benchmarks/textbook/make.R
# Each has the columns that its fit in textbook_fits.py needs, in the package's order of rows.

folder <- "benchmarks/textbook"
versions <- character()

of <- function(package, name) {
  version <- paste(package, as.character(packageVersion(package)))
  versions[[name]] <<- version
  kept <- new.env()
  suppressWarnings(data(list = name, package = package, envir = kept))
  as.data.frame(if (exists(name, kept, inherits = FALSE)) kept[[name]] else getExportedValue(package, name))
}

write <- function(name, table) {
  stopifnot(!any(grepl("[. ]", names(table))))
  write.csv(table, file.path(folder, paste0(name, ".csv")), row.names = FALSE, quote = FALSE, na = "")
  cat(name, nrow(table), "rows;", tail(versions, 1), "\n")
}

# Sites are a column of the table
d <- of("carData", "Chile")
write("chile", na.omit(d[c("region", "vote", "sex", "age", "education", "statusquo")]))
d <- of("MASS", "Aids2")
write("aids2", data.frame(state = d$state, days = d$death - d$diag + 0.9, died = as.integer(d$status == "D"),
                          sex = d$sex, category = d$T.categ, age = d$age))
d <- of("MASS", "coop")
write("coop", setNames(d, c("lab", "specimen", "batch", "conc")))
d <- of("AER", "Fatalities")
write("fatalities", data.frame(year = d$year, rate = round(1e4 * d$fatal / d$pop, 6), beertax = round(d$beertax, 6),
                               drinkage = cut(d$drinkage, c(0, 19, 20, 21, Inf), c("d18", "d19", "d20", "d21"), right = FALSE),
                               punish = ifelse(d$jail == "yes" | d$service == "yes", "yes", "no"),
                               miles = round(d$miles), unemp = round(d$unemp, 2), income = round(d$income)))
d <- of("lme4", "Arabidopsis")
write("arabidopsis", setNames(d[c("reg", "total.fruits", "nutrient", "amd", "rack", "status")],
                              c("region", "fruits", "nutrient", "clipping", "rack", "status")))
d <- of("Epi", "diet")
write("diet", data.frame(job = gsub(" ", "_", d$job), chd = d$chd, years = round(d$y, 4),
                         energy = ifelse(as.integer(d$energy.grp) == 1, "low", "high"), height = round(d$height, 2),
                         weight = round(d$weight, 2)))
d <- of("HSAUR3", "Lanza")
write("lanza", data.frame(study = d$study, treatment = d$treatment, grade = paste0("g", d$classification)))
d <- of("HSAUR3", "CHFLS")
write("chfls", data.frame(region = d$R_region, happy = as.integer(d$R_happy %in% c("Very happy", "Somewhat happy")), age = d$R_age,
                          education = sub(" .*", "", sub("Never.*", "None", d$R_edu)), health = sub(" ", "_", d$R_health), income = d$R_income))

# Sites are groups of a column's values
d <- of("survival", "cancer")
d <- d[!is.na(d$inst), ]
write("lung", data.frame(inst = d$inst, days = d$time, died = d$status - 1, age = d$age, sex = d$sex,
                         ecog = d$ph.ecog, karno = d$ph.karno, loss = d$wt.loss))
d <- of("MASS", "nlschools")
write("nlschools", data.frame(class = d$class, lang = d$lang, iq = d$IQ, ses = d$SES, comb = d$COMB))
d <- of("mlmRev", "Contraception")
write("contraception", data.frame(district = d$district, use = as.integer(d$use == "Y"), age = round(d$age, 4),
                                  urban = d$urban, children = paste0("c", substr(d$livch, 1, 1))))
d <- of("AER", "Guns")
write("guns", data.frame(state = as.integer(d$state), lviolent = round(log(d$violent), 5), law = d$law,
                         prisoners = d$prisoners, density = signif(d$density, 5), income = round(d$income),
                         population = signif(d$population, 5), afam = signif(d$afam, 5), cauc = signif(d$cauc, 5),
                         male = signif(d$male, 5)))
d <- of("MASS", "epil")
write("epil", data.frame(subject = d$subject, seizures = d$y, treatment = d$trt, lbase = round(d$lbase, 5),
                         lage = round(d$lage, 5), fourth = d$V4))
d <- of("lme4", "sleepstudy")
write("sleepstudy", data.frame(subject = d$Subject, reaction = round(d$Reaction, 3), days = d$Days))

# Sites are rows, dealt out
d <- of("survival", "veteran")
write("veteran", data.frame(days = d$time, died = d$status, trt = d$trt, cell = d$celltype, karno = d$karno,
                            diagtime = d$diagtime, age = d$age, prior = d$prior))
d <- of("survival", "pbc")
write("pbc", data.frame(days = d$time, died = as.integer(d$status == 2), age = round(d$age, 4), edema = d$edema,
                        bili = d$bili, albumin = d$albumin, protime = d$protime))
d <- of("survival", "gbsg")
write("gbsg", data.frame(days = d$rfstime, event = d$status, age = d$age, meno = d$meno, size = d$size, grade = d$grade,
                         nodes = d$nodes, pgr = d$pgr, er = d$er, hormon = d$hormon))
d <- of("MASS", "birthwt")
write("birthwt", data.frame(low = d$low, age = d$age, lwt = d$lwt, race = c("white", "black", "other")[d$race],
                            smoke = d$smoke, ptd = as.integer(d$ptl > 0), ht = d$ht, ui = d$ui,
                            ftv = c("none", "one", "more")[pmin(d$ftv, 2) + 1]))
d <- of("MASS", "Boston")
write("boston", cbind(lmedv = round(log(d$medv), 5), d[setdiff(names(d), "medv")]))
d <- of("mlbench", "PimaIndiansDiabetes")
write("pima", transform(d, diabetes = as.integer(diabetes == "pos")))
d <- of("AER", "Medicaid1986")
write("medicaid", d)
d <- of("carData", "Salaries")
write("salaries", setNames(d, gsub(".", "_", names(d), fixed = TRUE)))
d <- of("AER", "SwissLabor")
write("swisslabor", transform(d, participation = as.integer(participation == "yes")))
d <- of("AER", "CPS1985")
write("cps1985", cbind(lwage = round(log(d$wage), 5), d[setdiff(names(d), "wage")]))
